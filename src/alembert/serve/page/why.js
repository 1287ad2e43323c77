// Why an entity was found: words shaded by what they did, how far that can be trusted, and what changes with another word.
import { ask } from "./client.js";
import { $, make, span } from "./dom.js";
import { unitOffsets } from "./offsets.js";
import { chosen, percent, plain, report, review, say, signed, state, words } from "./state.js";

const AROUND = 40;
const STRONGEST = 8;
let asked = null; // {text, model, span, label, explanation}

/** Ask why the chosen entity was found; false if the service cannot say. */
export async function askWhy(tabs) {
  const entity = chosen();
  if (entity === undefined || !state.routes.has("/v1/explain")) return;
  tabs.open("why");
  $("why-body").replaceChildren(make("p", { className: "dim", textContent: words().explaining }));
  const request = { text: review().text, model: review().model, span: [entity.start, entity.end], label: entity.label };
  try {
    asked = { ...request, explanation: await explain(request) };
    drawWhy();
  } catch (problem) {
    if (problem.status === 404) {
      state.routes.delete("/v1/explain");
      $("why").hidden = true;
      tabs.offer("why", false);
    }
    report(problem);
  }
}

async function explain({ text, model, span: place, label }) {
  return (await ask("/v1/explain", { inputs: text, model, span: place, label })).explanation;
}

/** Draw the last explanation, or the hint how to get one. */
export function drawWhy() {
  if (asked === null) return $("why-body").replaceChildren(make("p", { className: "dim", textContent: words().why_hint }));
  const { explanation } = asked;
  $("why-body").replaceChildren(...about(explanation), shaded(explanation), strongest(explanation), faithfulness(explanation.faithfulness), editor());
}

function about({ text, span: place, label, question, margin, method }) {
  const asking = place ? words().question_why(Array.from(text).slice(...place).join(""), label) : question;
  return [make("p", { className: "headline", textContent: asking }), make("p", { className: "dim", textContent: words().margin(signed(margin), method) })];
}

// -- words

function shaded({ text, span: place, words: scored }) {
  const largest = Math.max(...scored.map(({ score }) => Math.abs(score)), 1e-9);
  const units = unitOffsets(text);
  const [from, to] = window_of(scored, place, largest);
  const detail = make("p", { className: "dim", aria: { role: "status" }, textContent: words().word_hint });
  const buttons = [];
  const nodes = [];
  let at = scored[from]?.start ?? 0;
  for (const word of scored.slice(from, to)) {
    nodes.push(text.slice(units[at], units[word.start]));
    const button = wordOf(word, largest, place, detail);
    nodes.push(button);
    buttons.push(button);
    at = word.end;
  }
  const shown = make("p", { className: "text why", aria: { role: "group", label: words().why_words } }, ...(from > 0 ? ["… "] : []), ...nodes, ...(to < scored.length ? [" …"] : []));
  walkable(shown, buttons);
  return make("div", {}, shown, detail);
}

/** The words around the span, and all that did something; for a class, everything. */
function window_of(scored, place, largest) {
  if (!place) return [0, scored.length];
  const near = (word) => word.start < place[1] && word.end > place[0];
  const first = scored.findIndex(near);
  const last = scored.findLastIndex(near);
  const strong = scored.map((word, at) => (Math.abs(word.score) > largest / 10 ? at : -1)).filter((at) => at >= 0);
  return [Math.max(0, Math.min(first - AROUND, ...strong.map((at) => at - 3))), Math.min(scored.length, Math.max(last + AROUND, ...strong.map((at) => at + 4)))];
}

function wordOf(word, largest, place, detail) {
  const strength = Math.abs(word.score) / largest;
  const side = strength < 0.05 ? "none" : word.score > 0 ? "for" : "against";
  const button = make("span", { className: `word ${side}`, textContent: word.text, tabIndex: -1, aria: { role: "img", label: `${word.text} ${signed(word.score)}` } });
  button.classList.toggle("target", Boolean(place) && word.start < place[1] && word.end > place[0]);
  button.style.setProperty("--strength", `${Math.round(8 + 34 * strength)}%`);
  const tell = () => { detail.textContent = words().word_score(word.text, signed(word.score), side); };
  button.addEventListener("focus", tell);
  button.addEventListener("mouseenter", tell);
  return button;
}

/** One stop of the tab key; arrow keys walk from word to word. */
function walkable(group, items) {
  if (items.length > 0) items[0].tabIndex = 0;
  group.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = items[items.indexOf(document.activeElement) + by];
    if (by === undefined || next === undefined) return;
    document.activeElement.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    event.preventDefault();
  });
}

function strongest({ words: scored, features = [] }) {
  const rows = [...scored, ...features].sort((a, b) => Math.abs(b.score) - Math.abs(a.score)).slice(0, STRONGEST);
  const largest = Math.max(...rows.map(({ score }) => Math.abs(score)), 1e-9);
  const body = rows.map(({ text, name, score }) => make("tr", {},
    make("th", { scope: "row", textContent: text ?? name }),
    make("td", {}, make("meter", { className: score < 0 ? "against" : "for", min: 0, max: largest, value: Math.abs(score), aria: { label: text ?? name } })),
    make("td", { className: "number", textContent: signed(score) })));
  return make("table", { className: "bars", aria: { label: words().strongest } }, make("tbody", {}, ...body));
}

function faithfulness(found) {
  if (!found) return "";
  const sentence = words().faithful(...[found.comprehensiveness, found.random_comprehensiveness, found.sufficiency, found.random_sufficiency].map(plain));
  const verdict = found.better_than_random ? words().is_faithful : words().not_faithful;
  return make("p", { className: found.better_than_random ? "note" : "note warning" }, make("strong", { textContent: verdict }), " ", sentence);
}

// -- another word

function editor() {
  const box = make("textarea", { id: "edited", rows: 4, spellcheck: false, value: asked.text });
  const outcome = make("div", { aria: { role: "status" } });
  const form = make("form", { onsubmit: (event) => { event.preventDefault(); readEdited(box.value, outcome); } },
    make("label", { htmlFor: "edited", textContent: words().edit }), box, make("div", { className: "row" }, make("button", { textContent: words().read_edited })));
  return make("section", {}, form, outcome);
}

async function readEdited(text, outcome) {
  if (!text.trim()) return say(words().nothing);
  const place = moveSpan(asked.text, text, asked.span);
  outcome.replaceChildren(words().explaining);
  try {
    const { predictions } = await ask("/v1/predict", { model: asked.model, inputs: [text] });
    const explanation = place === null ? null : await explain({ ...asked, text, span: place });
    outcome.replaceChildren(...drawOutcome(predictions[0], place, explanation));
  } catch (problem) {
    outcome.replaceChildren();
    report(problem);
  }
}

function drawOutcome(record, place, explanation) {
  const entities = (record.entities ?? Object.values(record).find((part) => part?.entities)?.entities ?? []).filter(({ start, end }) => place !== null && start < place[1] && end > place[0]);
  const found = entities.map(({ text, label, score }) => `${text}: ${label}, ${percent(score)} %`).join("; ");
  const before = asked.explanation.margin;
  const lines = [make("p", { className: "headline", textContent: place === null ? words().span_gone : found ? words().now_found(found) : words().now_nothing })];
  if (explanation === null) return lines;
  return [...lines, make("p", { className: "dim", textContent: words().margins(signed(before), signed(explanation.margin)) }), shaded(explanation)];
}

/** Where a span is in an edited text, by what is equal at both ends; null if nothing is left of it. Code points. */
export function moveSpan(before, after, [start, end]) {
  const [old, now] = [Array.from(before), Array.from(after)];
  const shorter = Math.min(old.length, now.length);
  let head = 0;
  while (head < shorter && old[head] === now[head]) head += 1;
  let tail = 0;
  while (tail < shorter - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail += 1;
  const by = now.length - old.length;
  const changed = old.length - tail; // what was changed is old[head..changed]
  const first = start >= changed ? start + by : Math.min(start, head);
  const last = end <= head ? end : Math.max(end, changed) + by;
  return first < last ? [first, last] : null;
}
