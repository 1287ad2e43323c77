// The boxes that the tasks of a model need: a text, two texts, a question with a passage, or a question with choices.
import { $ } from "./dom.js";
import { hasTask, modelNamed, words } from "./state.js";

/** What a model reads, by the known input that the service tests it with. */
export function formOf(model) {
  const example = model?.example;
  if (model === undefined || hasTask(model, "tag")) return "text";
  if (hasTask(model, "answer")) return "question";
  if (hasTask(model, "choose")) return "choices";
  if (typeof example === "string" && example.includes("\t")) return "pair";
  return typeof example === "string" && example.includes("<<") ? "marked" : "text";
}

/** Show the boxes of the chosen model. */
export function showBoxes() {
  const form = formOf(modelNamed($("model").value));
  const shown = { question: ["question", "choices"], choices: ["choices"], second: ["pair"] };
  for (const [id, forms] of Object.entries(shown)) $(`${id}-box`).hidden = !forms.includes(form);
  $("input-name").textContent = words()[{ question: "passage", choices: "passage", pair: "first_text", marked: "marked" }[form] ?? "input"];
}

/** The input that the boxes hold, or null if they are empty. */
export function readBoxes() {
  const text = $("input").value;
  const question = $("question").value;
  const passage = text.trim() ? { passage: text } : {};
  switch (formOf(modelNamed($("model").value))) {
    case "question": return question.trim() && text.trim() ? { question, passage: text } : null;
    case "choices": return question.trim() ? { question, choices: $("choices").value.split("\n").filter((line) => line.trim()), ...passage } : null;
    case "pair": return $("second").value.trim() && text.trim() ? `${text.replaceAll("\t", " ")}\t${$("second").value.replaceAll("\t", " ")}` : null;
    default: return text.trim() ? text : null;
  }
}
