// The page: what people do becomes decisions of a review, and a review becomes elements.
import { ask, askPatiently, setToken } from "./client.js";
import { showAnswer } from "./answers.js";
import { compare, drawComparison, offerModels, showComparison } from "./comparing.js";
import { acceptAllSure, addTexts, auditAgain, download, drawDocuments, onOpen, openNext, readAll, take } from "./documents.js";
import { $, Tabs } from "./dom.js";
import { acceptListed, choose, decide, decideEqual, hasDecisions, onChange, redraw, showText, step, undo, useBorders, useType } from "./entities.js";
import { formOf, readBoxes, showBoxes } from "./inputs.js";
import { moveSelection } from "./marks.js";
import { readTexts } from "./queue.js";
import { drawRelations, markPartners, offerRelations, relate } from "./relating.js";
import { chosen, modelNamed, report, review, say, state, words } from "./state.js";
import { askWhy, drawWhy } from "./why.js";
import { chooseLanguage, translate } from "./words.js";

const LARGEST = 8_000_000;
const tabs = new Tabs($("tabs"), (name) => review() !== null && showComparison(name === "compare"));

// -- asking

async function loadModels() {
  try {
    const { models, keeps_labels } = await ask("/v1/models");
    Object.assign(state, { models, keepsLabels: keeps_labels, routes: new Set(Object.keys((await ask("/openapi.json")).paths)) });
    $("model").replaceChildren(...models.map(({ name }) => new Option(name, name)));
    $("token-form").hidden = true;
    tabs.offer("compare", offerModels());
    tabs.offer("relations", offerRelations());
    tabs.offer("why", state.routes.has("/v1/explain"));
    $("why").hidden = !state.routes.has("/v1/explain");
    showBoxes();
  } catch (problem) {
    report(problem);
  }
}

/** Read what is in the boxes. */
async function read() {
  const input = readBoxes();
  if (input === null) return say(words().nothing);
  const model = $("model").value;
  if (formOf(modelNamed(model)) === "text") return readDocuments([{ name: words().pasted, text: input }]);
  say(words().reading);
  try {
    const { predictions } = await askPatiently("/v1/predict", { model, inputs: [input] });
    const entry = { text: null, input, record: null, review: null, relations: [] };
    take(entry, predictions[0], model);
    show(entry);
    return say(words().read);
  } catch (problem) {
    return report(problem);
  }
}

/** Put texts into the queue, read them, and show the first of them. */
async function readDocuments(texts, unread = 0) {
  if (texts.length === 0) return say(words().nothing);
  const model = $("model").value;
  const entries = addTexts(texts);
  const begun = performance.now();
  say(words().reading);
  try {
    await readAll(entries, model, (entry) => entry === entries[0] && show(entry));
    if (entries.length > 1) tabs.open("documents");
    return say(words().read_in(entries.length, Math.round(performance.now() - begun)) + (unread ? ` ${words().unread(unread)}` : ""));
  } catch (problem) {
    return report(problem);
  }
}

/** Show a document: its text with entities, and whatever else the model answered. */
function show(entry) {
  state.open = entry;
  entry.isSeen = true;
  const tasks = modelNamed($("model").value).tasks.filter(({ kind }) => kind === "tag");
  state.types = [...new Set([...tasks.flatMap(({ labels }) => labels), ...(entry.review?.entities ?? []).map(({ label }) => label)])];
  $("text-panel").hidden = $("side-panel").hidden = entry.review === null;
  $("record-panel").hidden = (entry.others ?? []).length === 0;
  $("record").replaceChildren(...(entry.others ?? []).map(({ record, asked }) => showAnswer(record, asked)));
  $("coverage").textContent = $("record-coverage").textContent = entry.coverage ? words().coverage(entry.coverage) : "";
  if (entry.review === null) return;
  showText();
  drawWhy();
  drawRelations();
  drawDocuments();
  if (tabs.current === "compare") showComparison(true);
}

// -- keys

const KEYS = {
  a: () => decide("accept"), r: () => decide("reject"), e: () => decideEqual(false), E: () => decideEqual(true), A: acceptListed,
  j: () => step(1), k: () => step(-1), u: undo, w: () => askWhy(tabs), x: useBorders, n: openNext,
};

function pressed(event) {
  const isTyping = event.target.closest("input, textarea, select");
  if (event.key === "Enter" && event.ctrlKey && isTyping?.closest("#ask")) return void read();
  if (isTyping || event.altKey || event.metaKey) return;
  if (review() === null) return void (event.key === "w" && !event.ctrlKey && $("record").querySelector("button.why")?.click());
  if ($("text") === event.target && moveSelection($("text"), event)) return;
  if (event.ctrlKey) return;
  const type = /^[1-9]$/.test(event.key) ? state.types[Number(event.key) - 1] : undefined;
  if (type !== undefined) useType(type);
  else KEYS[event.shiftKey ? event.key : event.key.toLowerCase()]?.();
}

// -- the page

/** Read files: one text goes into the box, several go into the queue. */
async function readFiles(files) {
  if (files.length === 0) return;
  if ([...files].some(({ size }) => size > LARGEST)) return void say(words().too_large);
  const read = await Promise.all([...files].map(async (file) => readTexts(file.name, await file.text(), $("paragraphs").checked)));
  const texts = read.flatMap((each) => each.texts);
  $("input").value = texts.length === 1 ? texts[0].text : "";
  if (formOf(modelNamed($("model").value)) !== "text") return void (await readFirst());
  await readDocuments(texts, read.reduce((sum, { bad }) => sum + bad, 0));
}

const readFirst = () => ($("input").value ? read() : say(words().one_text));

function listenToBoxes() {
  $("ask").addEventListener("submit", (event) => { event.preventDefault(); read(); });
  $("token-form").addEventListener("submit", (event) => { event.preventDefault(); setToken($("token").value); $("token").value = ""; loadModels(); });
  $("files").addEventListener("change", () => { readFiles($("files").files); });
  $("model").addEventListener("change", () => { showBoxes(); changeModel(); });
  $("language").addEventListener("change", () => setLanguage($("language").value));
  $("by").addEventListener("change", () => localStorage.setItem("by", $("by").value));
  for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
  document.addEventListener("dragover", () => $("input").classList.add("over"));
  document.addEventListener("dragleave", () => $("input").classList.remove("over"));
  document.addEventListener("drop", (event) => { $("input").classList.remove("over"); readFiles(event.dataTransfer.files); });
}

/** Read all documents again with another model; decisions stay. */
async function changeModel() {
  if (state.open?.review && formOf(modelNamed($("model").value)) === "text") {
    await readAll([state.open, ...state.documents.filter((entry) => entry !== state.open)], $("model").value, (entry) => entry === state.open && show(entry)).then(() => say(words().read), report);
  } else if (readBoxes() !== null) await read();
}

function listenToText() {
  $("text").addEventListener("click", ({ target }) => {
    const mark = target.closest("mark");
    if (mark?.dataset.entity && getSelection().isCollapsed) choose(Number(mark.dataset.entity));
  });
  $("text").addEventListener("mouseover", ({ target }) => {
    const mark = target.closest("mark");
    if (mark) markPartners(Number(mark.dataset.start), Number(mark.dataset.end));
  });
  $("list").addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    if (button) choose(Number(button.dataset.entity), { focus: true });
  });
  onChange(() => { const entity = chosen(); if (entity) markPartners(entity.start, entity.end); drawRelations(); drawDocuments(); });
  onOpen(show);
}

function listen() {
  listenToBoxes();
  listenToText();
  const buttons = {
    accept: KEYS.a, reject: KEYS.r, equal: KEYS.e, everywhere: KEYS.E, rest: KEYS.A, undo: KEYS.u, why: KEYS.w, next: KEYS.n,
    download, relate, "accept-sure": acceptAllSure,
  };
  for (const [id, act] of Object.entries(buttons)) $(id).addEventListener("click", act);
  for (const id of ["sort", "filter-type", "filter-score"]) $(id).addEventListener("input", () => review() && redraw());
  $("second-model").addEventListener("change", compare);
  $("compare-side").addEventListener("change", drawComparison);
  $("audit-share").addEventListener("change", auditAgain);
  document.addEventListener("keydown", pressed);
  addEventListener("beforeunload", (event) => { if (!state.keepsLabels && hasDecisions()) event.preventDefault(); });
}

function setLanguage(language) {
  state.language = language;
  localStorage.setItem("language", language);
  $("language").value = language;
  translate(language);
  if (state.models.length > 0) showBoxes();
  if (state.open) show(state.open);
}

listen();
tabs.open("entities");
setLanguage(chooseLanguage(localStorage.getItem("language")));
$("by").value = localStorage.getItem("by") ?? "";
loadModels();
