// Relations between the entities of the open text, by a second model: arcs in the text, and a table in which they are decided.
import { askPatiently } from "./client.js";
import { $, make } from "./dom.js";
import { choose, redraw } from "./entities.js";
import { ACCEPTED, OPEN, REJECTED } from "./review.js";
import { hasTask, percent, report, review, say, state, words } from "./state.js";
import { whyButton } from "./why.js";

let explained = null; // the relations that the explanation below the table is about

/** Offer the models that relate entities of documents. */
export function offerRelations() {
  const models = state.models.filter((model) => hasTask(model, "relate"));
  $("relation-model").replaceChildren(...models.map(({ name }) => new Option(name, name)));
  return models.length > 0;
}

/** Ask for the relations of all entities that were not rejected. */
export async function relate() {
  const { open } = state;
  const entities = review().right.map(({ label, start, end }, at) => ({ id: `T${at + 1}`, label, spans: [[start, end]] }));
  if (entities.length < 2) return say(words().no_relations);
  say(words().reading);
  try {
    const { predictions } = await askPatiently("/v1/predict", { model: $("relation-model").value, inputs: [{ text: review().text, entities }] });
    open.relations = predictions[0].triples ?? [];
    open.relatedBy = $("relation-model").value;
    say(words().relations_found(open.relations.length));
    if (open === state.open) redraw();
    drawRelations();
  } catch (problem) {
    report(problem);
  }
}

/** Draw the table; relations of rejected entities are left out. */
export function drawRelations() {
  const relations = (state.open?.relations ?? []).filter(({ head, tail }) => [head, tail].every((end) => entityAt(end)?.state !== REJECTED));
  const rows = relations.flatMap((relation) => [
    make("tr", {},
      make("td", {}, end(relation.head)), make("td", { textContent: relation.relation }), make("td", {}, end(relation.tail)),
      make("td", { className: "number", textContent: relation.score === undefined ? "" : `${percent(relation.score)} %` })),
    make("tr", {}, make("td", { className: "deciding", colSpan: 4 }, decide(relation, ACCEPTED, "accept"), decide(relation, REJECTED, "reject"), whyRelation(relation))),
  ]);
  if (explained !== state.open?.relations) $("relation-why").replaceChildren();
  explained = state.open?.relations;
  const heads = [words().head, words().relation, words().tail, words().score].map((name) => make("th", { scope: "col", textContent: name }));
  $("relation-table").replaceChildren(rows.length > 0 ? make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)) : make("p", { className: "dim", textContent: words().no_relations }));
}

/** A button that accepts or rejects a relation, and when it is pressed again takes that back. */
function decide(relation, decided, word) {
  const isDecided = relation.state === decided;
  const press = () => {
    relation.state = isDecided ? OPEN : decided;
    redraw();
    $("relation-table").querySelector(`[aria-label="${CSS.escape(name)}"]`)?.focus();
  };
  const name = `${words()[word]} ${titleOf(relation)}`;
  return make("button", { type: "button", className: "small", textContent: words()[word], onclick: press, aria: { pressed: isDecided, label: name } });
}

const titleOf = ({ head, relation, tail }) => `${review().surface(head)} → ${relation} → ${review().surface(tail)}`;

/** The button that asks why two entities are related; the model reads these two alone, as it does with all others around. */
function whyRelation(found) {
  const { head, tail, relation } = found;
  const entities = [head, tail].map((place, at) => ({ id: `T${at + 1}`, label: entityAt(place)?.label ?? "", spans: [[place.start, place.end]] }));
  const request = { model: state.open.relatedBy, inputs: { text: review().text, entities }, label: relation };
  return whyButton(request, titleOf(found), true, $("relation-why"));
}

const entityAt = ({ start, end: last }) => review()?.entities.find((entity) => entity.start === start && entity.end === last);

function end(place) {
  return make("button", { type: "button", className: "small", textContent: review().surface(place), onclick: () => { const entity = entityAt(place); if (entity) choose(entity.number); } });
}

/** Mark the entities that the chosen one is related to, in the text. */
export function markPartners(start, end_) {
  const partners = (state.open?.relations ?? []).flatMap(({ head, tail }) => (same(head, start, end_) ? [tail] : same(tail, start, end_) ? [head] : []));
  for (const mark of $("text").querySelectorAll("mark")) {
    mark.classList.toggle("partner", partners.some((partner) => same(partner, Number(mark.dataset.start), Number(mark.dataset.end))));
  }
}

const same = (place, start, last) => place.start === start && place.end === last;
