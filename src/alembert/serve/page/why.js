// Why an answer was given: words shaded by what they did, how far that can be trusted, and for entities what changes with
// another word.
import { ask } from "./client.js";
import { $, make, span } from "./dom.js";
import { unitOffsets } from "./offsets.js";
import { chosen, percent, plain, report, review, say, signed, state, words } from "./state.js";

const AROUND = 40;
const STRONGEST = 8;
let asked = null; // {inputs, model, task, span, label, explanation}

/** Ask why the chosen entity was found; false if the service cannot say. */
export async function askWhy(tabs) {
  const entity = chosen();
  if (entity === undefined || !state.routes.has("/v1/explain")) return;
  tabs.open("why");
  $("why-body").replaceChildren(make("p", { className: "dim", textContent: words().explaining }));
  const request = { inputs: review().text, model: review().model, ...state.open.tagging, span: [entity.start, entity.end], label: entity.label };
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

async function explain({ inputs, model, task, span: place, label }) {
  return (await ask("/v1/explain", { inputs, model, task, span: place, label })).explanation;
}

/** A button that asks why an answer was given, or why another one was not; the explanation is shown in an element. */
export function whyButton(request, name, isGiven, target) {
  if (!state.routes.has("/v1/explain")) return null;
  const words_ = isGiven ? words().why : words().why_not;
  return make("button", { type: "button", className: "small why", textContent: words_, onclick: () => explainInto(target, request, name, isGiven), aria: { label: `${words_} ${name}` } });
}

async function explainInto(target, request, name, isGiven) {
  target.asked = request; // of two that are asked for one after the other, the last is shown
  target.replaceChildren(make("p", { className: "dim", aria: { role: "status" }, textContent: words().explaining }));
  try {
    const explanation = await explain(request);
    if (target.asked !== request) return;
    const headline = make("p", { className: "headline", textContent: isGiven ? words().why_answer(name) : words().why_other(name) });
    target.replaceChildren(headline, margin(explanation), ...picture(explanation));
  } catch (problem) {
    target.replaceChildren(...(problem.status === undefined ? [] : [make("p", { className: "note warning", textContent: problem.message })]));
    report(problem);
  }
}

/** Draw the last explanation, or the hint how to get one. */
export function drawWhy() {
  if (asked === null) return $("why-body").replaceChildren(make("p", { className: "dim", textContent: words().why_hint }));
  const { explanation } = asked;
  const { text, span: place, label } = explanation;
  const asking = words().question_why(Array.from(text).slice(...place).join(""), label);
  $("why-body").replaceChildren(make("p", { className: "headline", textContent: asking }), margin(explanation), ...picture(explanation), editor());
}

const margin = (explanation) => make("p", { className: "dim", textContent: words().margin(signed(explanation.margin), explanation.method) });

/** The words of all texts, the strongest of them, and what the picture is worth. */
function picture(explanation) {
  const border = leansOnBorder(explanation) ? [make("p", { className: "note", textContent: words().border_note })] : [];
  return [...shaded(explanation), strongest(explanation), faithfulness(explanation.faithfulness), ...border];
}

/** Whether the highest score is that of a word beside the span. */
export function leansOnBorder({ span: place, words: scored }) {
  const own = scored.filter(({ part = 0 }) => part === 0);
  if (!place || own.length === 0) return false;
  const highest = own.reduce((best, word) => (word.score > best.score ? word : best));
  return highest === own.findLast(({ end }) => end <= place[0]) || highest === own.find(({ start }) => start >= place[1]);
}

// -- words

/** The texts that have words, and below them what the focused word did. */
function shaded({ text, texts = [text], span: place, words: scored }) {
  const largest = Math.max(...scored.map(({ score }) => Math.abs(score)), 1e-9);
  const detail = make("p", { className: "dim", aria: { role: "status" }, textContent: words().word_hint });
  const own = texts.map((_, number) => scored.filter(({ part = 0 }) => part === number));
  const shown = texts.map((each, number) => own[number].length > 0 && shadedText(each, own[number], number === 0 ? place : null, largest, detail));
  return [...shown.filter(Boolean), detail];
}

function shadedText(text, scored, place, largest, detail) {
  const units = unitOffsets(text);
  const [from, to] = window_of(scored, place, largest);
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
  return shown;
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
  const box = make("textarea", { id: "edited", rows: 4, spellcheck: false, value: asked.inputs });
  const outcome = make("div", { aria: { role: "status" } });
  const form = make("form", { onsubmit: (event) => { event.preventDefault(); readEdited(box.value, outcome); } },
    make("label", { htmlFor: "edited", textContent: words().edit }), box, make("div", { className: "row" }, make("button", { textContent: words().read_edited })));
  return make("section", {}, form, outcome);
}

async function readEdited(text, outcome) {
  if (!text.trim()) return say(words().nothing);
  const place = moveSpan(asked.inputs, text, asked.span);
  outcome.replaceChildren(words().explaining);
  try {
    const { predictions } = await ask("/v1/predict", { model: asked.model, inputs: [text] });
    const explanation = place === null ? null : await explain({ ...asked, inputs: text, span: place });
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
  return [...lines, make("p", { className: "dim", textContent: words().margins(signed(before), signed(explanation.margin)) }), ...shaded(explanation)];
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
