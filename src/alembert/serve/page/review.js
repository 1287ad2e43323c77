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

export class Review {
  constructor(text, entities, model) {
    this.text = text;
    this.id = nameOf(text);
    this.model = model;
    this.points = Array.from(text);
    this.units = unitOffsets(text);
    this.entities = entities.map((entity, number) => ({
      number, start: entity.start, end: entity.end, label: entity.label, score: entity.score ?? 1, state: OPEN, first: entity.label,
    }));
    this.past = [];
  }

  surface(entity) {
    return this.text.slice(this.units[entity.start], this.units[entity.end]);
  }

  /** Entities with the same surface and type, this one included. */
  equals(entity) {
    const surface = this.surface(entity);
    return this.entities.filter((other) => other.label === entity.label && this.surface(other) === surface);
  }

  get isReviewed() {
    return this.entities.every((entity) => entity.state !== OPEN);
  }

  get right() {
    return this.entities.filter((entity) => entity.state !== REJECTED).sort((a, b) => a.start - b.start || b.end - a.end);
  }

  /** Change entities, remember how they were, and return the decisions that were made. */
  decide(entities, action, label) {
    this.past.push(this.entities.map((entity) => ({ ...entity })));
    return entities.map((entity) => {
      if (label !== undefined) entity.label = label;
      entity.state = action === "reject" ? REJECTED : ACCEPTED;
      return decision(action, entity);
    });
  }

  /** Mark a new entity at a span of code points; null if it is blank or there already. */
  add(start, end, label) {
    const span = trimSpan(this.points, start, end);
    if (span === null) return null;
    const same = this.entities.find((entity) => entity.start === span.start && entity.end === span.end);
    if (same) return { entity: same, decisions: this.decide([same], same.label === label ? "accept" : "relabel", label) };
    this.past.push(this.entities.map((each) => ({ ...each })));
    const number = Math.max(-1, ...this.entities.map((each) => each.number)) + 1;
    const entity = { number, ...span, label, score: 1, state: ACCEPTED, first: "" };
    this.entities.push(entity);
    return { entity, decisions: [decision("add", entity)] };
  }

  /** Take back the last change; return what is changed by that. */
  undo() {
    const before = this.past.pop();
    if (before === undefined) return [];
    const old = new Map(before.map((entity) => [entity.number, entity]));
    const changed = this.entities.filter((now) => {
      const then = old.get(now.number);
      return then === undefined || then.state !== now.state || then.label !== now.label;
    });
    this.entities = before;
    return changed.map((entity) => decision("undo", old.get(entity.number) ?? entity));
  }

  /** The text as training data. */
  record() {
    const entities = this.right.map((entity, number) => ({ id: `T${number + 1}`, label: entity.label, spans: [[entity.start, entity.end]] }));
    return { id: this.id, text: this.text, entities };
  }

  /** The text and a decision as the service stores them. */
  request(made, by) {
    const entities = this.right.filter((entity) => entity.state === ACCEPTED).map(({ start, end, label }) => ({ start, end, label }));
    const state = this.isReviewed ? "reviewed" : "open";
    return { id: this.id, text: this.text, entities, state, by, decision: { ...made, model: this.model } };
  }
}

function decision(action, entity) {
  return { action, start: entity.start, end: entity.end, label: entity.label };
}
