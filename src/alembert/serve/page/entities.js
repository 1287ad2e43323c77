// The open text with its entities: drawing, choosing and correcting them.
import { TextView } from "./blocks.js";
import { $, make, PagedList, span } from "./dom.js";
import { selectedSpan, weight } from "./marks.js";
import { byPlace, OPEN } from "./review.js";
import { chosen, colour, describe, percent, review, say, state, words } from "./state.js";
import { saveDecisions } from "./saving.js";

const view = new TextView($("text"), { colour, describe, note: (entity) => words().side_sign?.[entity.side] ?? "" });
const list = new PagedList($("list"), row);
const news = new EventTarget();
let last = null; // the last decision: {action, label, before, surface}
let ghosts = []; // what another model found and this one did not
let acts = []; // what can be undone: the review that was open, and what each review keeps of the step

/** Call a function when decisions were made or another entity was chosen. */
export const onChange = (call) => news.addEventListener("change", call);

/** Show the open document. */
export function showText() {
  Object.assign(state, { chosen: null });
  ghosts = [];
  drawTypes();
  list.name(words().earlier, words().later);
  view.show(review(), review().entities, state.open.relations);
  drawList();
}

/** Draw what may have changed. */
export function redraw({ reveal = false } = {}) {
  view.update(ghosts.length > 0 ? [...review().entities, ...ghosts] : review().entities, state.chosen, state.open.relations);
  const entity = chosen();
  if (reveal && entity) view.reveal(entity);
  drawList(reveal);
  news.dispatchEvent(new Event("change"));
}

/** Show entities of another model in the text, beside those of the review. */
export function showGhosts(entities) {
  ghosts = entities;
  redraw();
}

export const reveal = (place) => view.reveal(place);

function drawTypes() {
  $("types").replaceChildren(...state.types.map((label, at) => make("button", {
    type: "button", className: `c${at % 6}`, onclick: () => useType(label), onmousedown: (event) => event.preventDefault(), // keeps the selection
  }, ...(at < 9 ? [make("kbd", { textContent: at + 1 }), " "] : []), label)));
  const kept = $("filter-type").value;
  $("filter-type").replaceChildren(new Option(words().all, ""), ...state.types.map((label) => new Option(label, label)));
  $("filter-type").value = state.types.includes(kept) ? kept : "";
}

/** The entities of the list, filtered and sorted. */
function listed() {
  const type = $("filter-type").value;
  const least = Number($("filter-score").value);
  const kept = review().entities.filter((entity) => (!type || entity.label === type) && entity.score >= least);
  return kept.sort($("sort").value === "doubt" ? (a, b) => a.score - b.score || byPlace(a, b) : byPlace);
}

function drawList(reveal = false) {
  const entities = listed();
  const open = entities.filter((entity) => entity.state === OPEN).length;
  $("count").textContent = words().shown(entities.length, review().entities.length);
  list.show(entities, reveal ? entities.findIndex(({ number }) => number === state.chosen) : -1);
  if (entities.length === 0) $("list").append(make("li", { className: "dim", textContent: words().none }));
  for (const id of ["accept", "reject", "why"]) $(id).disabled = chosen() === undefined;
  for (const id of ["equal", "everywhere"]) $(id).disabled = last === null;
  $("rest").disabled = open === 0;
  $("rest-count").textContent = open || "";
  $("undo").disabled = !acts.some(concernsOpen);
}

function row(entity) {
  const surface = span(`surface w${weight(entity.score)}`, review().surface(entity));
  const button = make("button", { type: "button", className: `c${colour(entity.label) % 6}`, data: { entity: entity.number }, aria: { current: entity.number === state.chosen } },
    surface, span("label", entity.label), span("state", `${percent(entity.score)} % · ${words()[entity.state]}`));
  return make("li", {}, button);
}

// -- choosing

export function choose(number, { focus = false } = {}) {
  state.chosen = number;
  redraw({ reveal: true });
  const button = $("list").querySelector("[aria-current=true]");
  if (focus) button?.focus();
  else button?.scrollIntoView({ block: "nearest" });
}

export function step(by) {
  const entities = listed();
  if (entities.length === 0) return;
  const at = entities.findIndex((entity) => entity.number === state.chosen);
  const next = at < 0 ? (by > 0 ? 0 : entities.length - 1) : (at + by + entities.length) % entities.length;
  choose(entities[next].number, { focus: $("list").contains(document.activeElement) });
}

// -- correcting

function finish(decisions) {
  note([review()]);
  saveDecisions(review(), decisions);
  redraw();
}

function remember(entity, action, label, before = entity.label) {
  last = { action, label, before, surface: review().surface(entity) };
}

export function decide(action, label) {
  const entity = chosen();
  if (entity === undefined) return;
  remember(entity, action, label);
  finish(review().decide([entity], action, label));
}

/** Decide equal entities like the last one: in this text, or in all documents that are not audited. */
export function decideEqual(everywhere) {
  if (last === null) return;
  const others = everywhere ? state.documents.filter((entry) => entry.review && !entry.isAudited).map((entry) => entry.review) : [];
  const changed = [...new Set([review(), ...others])].filter((each) => each.equals(last.surface, last.before).length > 0);
  let count = 0;
  for (const each of changed) {
    const decisions = each.decide(each.equals(last.surface, last.before), last.action, last.label);
    count += decisions.length;
    saveDecisions(each, decisions);
  }
  if (count > 0) note(changed);
  say(words().decided_equal(count, changed.length));
  redraw();
}

export function useType(label) {
  const selected = selectedSpan($("text"), review());
  const entity = chosen();
  if (selected === null) return entity && decide(entity.label === label ? "accept" : "relabel", label);
  return place(review().add(selected.start, selected.end, label));
}

/** Give the chosen entity the borders of what is selected. */
export function useBorders() {
  const selected = selectedSpan($("text"), review());
  if (selected !== null && chosen() !== undefined) place(review().move(chosen(), selected.start, selected.end));
}

/** Take over an entity that another model found. */
export function takeOver({ start, end, label }) {
  place(review().add(start, end, label));
}

function place(added) {
  if (added === null) return;
  getSelection().removeAllRanges();
  state.chosen = added.entity.number;
  remember(added.entity, "accept", added.entity.label);
  finish(added.decisions);
}

export function acceptListed() {
  const open = listed().filter((entity) => entity.state === OPEN);
  if (open.length > 0) finish(review().decide(open, "accept"));
}

/** Accept what is sure in all documents that are not audited; return how many entities. */
export function acceptSure(score) {
  let count = 0;
  const changed = [];
  for (const entry of state.documents.filter((each) => each.review && !each.isAudited)) {
    const sure = entry.review.open.filter((entity) => entity.score >= score);
    if (sure.length === 0) continue;
    saveDecisions(entry.review, entry.review.decide(sure, "accept"));
    changed.push(entry.review);
    count += sure.length;
  }
  if (count > 0) note(changed);
  if (review()) redraw();
  return count;
}

const note = (changed) => acts.push({ home: review(), steps: new Map(changed.map((each) => [each, each.past.at(-1)])) });
const concernsOpen = ({ home, steps }) => home === review() || steps.has(review());

/** Undo the last step that was made here, or that changed this document. */
export function undo() {
  const at = acts.findLastIndex(concernsOpen);
  if (at < 0) return;
  const [{ steps }] = acts.splice(at, 1);
  for (const [each, step] of steps) saveDecisions(each, each.undo(step));
  redraw();
}

/** Forget decisions about reviews that are no longer there. */
export function forget(gone) {
  acts = acts.filter(({ home, steps }) => home !== gone && !steps.has(gone));
}

export const hasDecisions = () => acts.length > 0;
