// Two models on the open text: counts, a filter, and a list; what only the second model found can be taken over.
import { askPatiently } from "./client.js";
import { compareEntities, countSides } from "./compare.js";
import { $, make, PagedList, span } from "./dom.js";
import { choose, reveal, showGhosts, takeOver } from "./entities.js";
import { byPlace } from "./review.js";
import { colour, hasTask, percent, report, review, state, words } from "./state.js";

const list = new PagedList($("compare-list"), row);
let compared = null;

/** Offer the models that tag. */
export function offerModels() {
  const taggers = state.models.filter((model) => hasTask(model, "tag"));
  $("second-model").replaceChildren(...taggers.map(({ name }) => new Option(name, name)));
  return taggers.length > 1;
}

/** Read the open text with the second model, another one than the first if possible. */
export async function compare() {
  const open = review();
  if (open === null) return;
  const others = [...$("second-model").options].map(({ value }) => value).filter((name) => name !== open.model);
  if ($("second-model").value === open.model && others.length > 0) [$("second-model").value] = others;
  const name = $("second-model").value;
  $("compare-counts").textContent = words().reading;
  try {
    const { predictions } = await askPatiently("/v1/predict", { model: name, inputs: [open.text] });
    if (open !== review()) return;
    const mine = open.proposed.map((entity) => ({ ...entity, label: entity.first }));
    const record = predictions[0].entities ? predictions[0] : Object.values(predictions[0]).find((part) => part.entities);
    compared = { open, name, entities: compareEntities(mine, record.entities) };
    drawComparison();
  } catch (problem) {
    $("compare-counts").textContent = "";
    report(problem);
  }
}

/** Compare when the panel is opened, and once for each text; otherwise show what the first model found alone. */
export function showComparison(isOpen) {
  if (!isOpen) return compared !== null && compared.open === review() && showGhosts([]);
  if (compared === null || compared.open !== review()) return compare();
  return drawComparison();
}

export function drawComparison() {
  if (compared === null || compared.open !== review()) return;
  const { both, a, b } = countSides(compared.entities);
  $("compare-counts").textContent = words().sides(both, a, review().model, b, compared.name);
  list.name(words().earlier, words().later);
  const side = $("compare-side").value;
  const shown = compared.entities.filter((entity) => !side || entity.side === side).sort(byPlace);
  list.show(shown);
  if (shown.length === 0) $("compare-list").append(make("li", { className: "dim", textContent: words().none }));
  showGhosts(compared.entities.filter((entity) => entity.side === "b").map(({ start, end, label, score }) => ({ start, end, label, score, side: "b" })));
}

function row(entity) {
  const other = entity.other ? ` ≠ ${entity.other}` : "";
  const button = make("button", { type: "button", className: `c${colour(entity.label) % 6}`, onclick: () => visit(entity) },
    span("surface w2", review().surface(entity)), span("label", entity.label + other), span("state", sideOf(entity)));
  const add = entity.side === "b" ? make("button", { type: "button", className: "small", textContent: words().take_over, onclick: () => takeOver(entity) }) : null;
  return make("li", { className: "pair" }, button, add);
}

function sideOf({ side, score, score_b }) {
  if (side === "both") return `${percent(score)} % · ${percent(score_b)} %`;
  return `${side === "a" ? words().only_a : words().only_b} · ${percent(score)} %`;
}

function visit(entity) {
  const own = review().entities.find(({ start, end }) => start === entity.start && end === entity.end);
  if (own) choose(own.number);
  else reveal(entity);
}
