// A text under review: its entities, what was decided about them, and what can be undone. Nothing here touches the page.
import { trimSpan, unitOffsets } from "./offsets.js";

export const OPEN = "open";
export const ACCEPTED = "accepted";
export const REJECTED = "rejected";

/** A name for a text: the same for everyone who reads it. */
export function nameOf(text) {
  let one = 0x811c9dc5;
  let other = 0x1b873593;
  for (let unit = 0; unit < text.length; unit += 1) {
    one = Math.imul(one ^ text.charCodeAt(unit), 0x01000193);
    other = Math.imul(other ^ text.charCodeAt(unit), 0x5bd1e995) + unit;
  }
  return [one, other].map((part) => (part >>> 0).toString(16).padStart(8, "0")).join("");
}

export const byPlace = (a, b) => a.start - b.start || b.end - a.end;

export class Review {
  constructor(text, entities, model) {
    this.text = text;
    this.id = nameOf(text);
    this.model = model;
    this.points = Array.from(text);
    this.units = unitOffsets(text);
    this.entities = [];
    this.past = [];
    for (const { start, end, label, score } of entities) this.put({ start, end, label, score: score ?? 1, state: OPEN, first: label });
  }

  /** Add an entity under a new number; `first` is the type that the model proposed, "" if it proposed nothing. */
  put(entity) {
    const made = { number: this.next ?? 0, ...entity };
    this.next = made.number + 1;
    this.entities.push(made);
    return made;
  }

  surface({ start, end }) {
    return this.text.slice(this.units[start], this.units[end]);
  }

  find(number) {
    return this.entities.find((entity) => entity.number === number);
  }

  /** Undecided entities with a surface and a type. */
  equals(surface, label) {
    return this.open.filter((other) => other.label === label && this.surface(other) === surface);
  }

  get open() {
    return this.entities.filter((entity) => entity.state === OPEN);
  }

  get isReviewed() {
    return this.entities.every((entity) => entity.state !== OPEN);
  }

  get right() {
    return this.entities.filter((entity) => entity.state !== REJECTED).sort(byPlace);
  }

  get proposed() {
    return this.entities.filter((entity) => entity.first !== "");
  }

  /** Change entities, remember how they were, and return the decisions that were made. */
  decide(entities, action, label) {
    this.past.push(entities.map((entity) => ({ ...entity })));
    return entities.map((entity) => {
      if (label !== undefined) entity.label = label;
      entity.state = action === "reject" ? REJECTED : ACCEPTED;
      return decision(action, entity);
    });
  }

  /** Mark a new entity at a span of code points; null if it is blank. One that is there already is decided. */
  add(start, end, label) {
    const span = trimSpan(this.points, start, end);
    if (span === null) return null;
    const same = this.entities.find((entity) => entity.start === span.start && entity.end === span.end);
    if (same) return { entity: same, decisions: this.decide([same], same.label === label ? "accept" : "relabel", label) };
    const entity = this.put({ ...span, label, score: 1, state: ACCEPTED, first: "" });
    this.past.push([{ number: entity.number, isNew: true }]);
    return { entity, decisions: [decision("add", entity)] };
  }

  /** Give an entity other borders: it is rejected, and there is a new one; one step to undo. */
  move(entity, start, end) {
    const span = trimSpan(this.points, start, end);
    if (span === null || (span.start === entity.start && span.end === entity.end)) return null;
    const rejected = this.decide([entity], "reject");
    const added = this.add(span.start, span.end, entity.label);
    this.past.push([...this.past.pop(), ...this.past.pop()]);
    return { entity: added.entity, decisions: [...rejected, ...added.decisions] };
  }

  /** Take back a step, the last one if none is named; return what is changed by that. */
  undo(step = this.past.at(-1)) {
    this.past = this.past.filter((each) => each !== step);
    return (step ?? []).map((then) => {
      const now = this.find(then.number);
      if (then.isNew) this.entities.splice(this.entities.indexOf(now), 1);
      else Object.assign(now, then);
      return decision("undo", now);
    });
  }

  /** Keep what was decided about the text before it was read again. */
  keep(former) {
    for (const old of former.entities.filter((entity) => entity.state !== OPEN)) {
      const same = this.entities.find((entity) => entity.start === old.start && entity.end === old.end);
      if (same) Object.assign(same, { label: old.label, state: old.state });
      else if (old.state === ACCEPTED) this.put({ ...old, number: this.next ?? 0, first: "" });
    }
  }

  /** The text in the native annotation format: what is right, with its state; what was rejected beside it. */
  record(name, by, found = []) {
    const { right } = this;
    const entities = right.map((entity, at) => ({
      id: `T${at + 1}`, label: entity.label, spans: [[entity.start, entity.end]],
      attributes: [["state", stateOf(entity)], ...(entity.first === "" ? [] : [["score", entity.score.toFixed(4)]])],
    }));
    const rejected = this.entities.filter((entity) => entity.state === REJECTED).map(({ start, end, label, score }) => ({ start, end, label, score }));
    const meta = { state: this.isReviewed ? "reviewed" : "open", model: this.model, name, by, rejected };
    return { id: this.id, text: this.text, entities, relations: relationsOf(found, right), meta };
  }

  /** The text and decisions that were made at once, as the service stores them. */
  request(decisions, by) {
    const entities = this.right.filter((entity) => entity.state === ACCEPTED).map(({ start, end, label }) => ({ start, end, label }));
    const state = this.isReviewed ? "reviewed" : "open";
    const [made, ...also] = decisions.map((each) => ({ ...each, model: this.model }));
    return { id: this.id, text: this.text, entities, state, by, decision: made, also };
  }
}

function stateOf(entity) {
  if (entity.state === OPEN) return OPEN;
  if (entity.first === "") return "added";
  return entity.label === entity.first ? ACCEPTED : "changed";
}

/** The relations that were not rejected, between entities that are right. */
function relationsOf(found, right) {
  const idOf = ({ start, end }) => right.findIndex((entity) => entity.start === start && entity.end === end) + 1;
  const kept = found.filter(({ head, tail, state }) => state !== REJECTED && idOf(head) > 0 && idOf(tail) > 0);
  return kept.map(({ head, tail, relation, score, state = OPEN }, at) => ({
    id: `R${at + 1}`, label: relation, arguments: [["Arg1", `T${idOf(head)}`], ["Arg2", `T${idOf(tail)}`]],
    attributes: [["state", state], ...(score === undefined ? [] : [["score", score.toFixed(4)]])],
  }));
}

function decision(action, entity) {
  return { action, start: entity.start, end: entity.end, label: entity.label };
}
