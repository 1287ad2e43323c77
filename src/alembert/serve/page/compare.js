// Two models on a text: what both find, and what only one does. Nothing here touches the page.
import { byPlace } from "./review.js";

/** Compare the entities of two models; `side` is both, a or b, and `other` the type that the other model gives the span. */
export function compareEntities(mine, theirs) {
  const keyOf = ({ start, end, label }) => `${start} ${end} ${label}`;
  const spanOf = ({ start, end }) => `${start} ${end}`;
  const [a, b] = [mine, theirs].map((side) => new Map(side.map((entity) => [keyOf(entity), entity])));
  const [spansA, spansB] = [mine, theirs].map((side) => new Map(side.map((entity) => [spanOf(entity), entity.label])));
  const fromA = [...a].map(([key, entity]) => {
    if (b.has(key)) return { ...entity, side: "both", score_b: b.get(key).score };
    return { ...entity, side: "a", other: spansB.get(spanOf(entity)) };
  });
  const fromB = [...b].filter(([key]) => !a.has(key)).map(([, entity]) => ({ ...entity, side: "b", other: spansA.get(spanOf(entity)) }));
  return [...fromA, ...fromB].sort(byPlace);
}

/** How many entities each side has. */
export function countSides(compared) {
  const counts = { both: 0, a: 0, b: 0 };
  for (const { side } of compared) counts[side] += 1;
  return counts;
}
