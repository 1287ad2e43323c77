// The words of the page in English and Chinese.
export const WORDS = {
  en: {
    model: "Model", name: "Your name", language: "Language", token: "Token of this server", send: "Send",
    input: "Text: type, paste, or drop a file", read: "Read", text: "Text", entities: "Entities", sort: "Sort", place: "by place",
    doubt: "least certain first", type: "Type", all: "all", above: "Score from", accept: "Accept", reject: "Reject",
    equal: "Same for all equal", rest: "Accept the rest", undo: "Undo", download: "Download", answer: "Answer",
    open: "undecided", accepted: "accepted", rejected: "rejected", reading: "Reading …", none: "No entities were found.",
    keys: "Keys: J and K go to the next and the previous entity, 1 to 9 change its type. Select text (with the mouse, or with Shift and arrow keys in the text) and press 1 to 9 to mark a new entity.",
    coverage: (c) => `${c.characters} characters, ${c.tokens} tokens, ${c.windows} windows: read completely.`,
    shown: (few, many) => `${few} of ${many}`, read_in: (ms) => `Read in ${ms} ms.`,
    describe: (label, score, state) => `${label}, ${score} %, ${state}`,
    undecided: (count) => `Nothing to download: ${count} entities are undecided. Accept the rest with Shift+A.`,
    downloaded: (count) => `Reviewed texts downloaded: ${count}.`, saved: "Decision saved.", failed: "The service cannot be reached.",
    not_saved: "The decision was not saved on the server: ", too_large: "The file is larger than 8 MB.", nothing: "There is no text.",
  },
  zh: {
    model: "模型", name: "您的姓名", language: "语言", token: "服务器令牌", send: "发送",
    input: "文本：输入、粘贴或拖入文件", read: "识别", text: "文本", entities: "实体", sort: "排序", place: "按位置",
    doubt: "最不确定的在前", type: "类型", all: "全部", above: "分数不低于", accept: "接受", reject: "拒绝",
    equal: "相同实体同样处理", rest: "接受其余实体", undo: "撤销", download: "下载", answer: "结果",
    open: "未决定", accepted: "已接受", rejected: "已拒绝", reading: "正在识别……", none: "没有找到实体。",
    keys: "按键：J 和 K 转到下一个和上一个实体，1 到 9 更改类型。选中文本（用鼠标，或在文本中用 Shift 加方向键）后按 1 到 9 标注新实体。",
    coverage: (c) => `${c.characters} 个字符，${c.tokens} 个词元，${c.windows} 个窗口：已全部读取。`,
    shown: (few, many) => `${few} / ${many}`, read_in: (ms) => `用时 ${ms} 毫秒。`,
    describe: (label, score, state) => `${label}，${score}%，${state}`,
    undecided: (count) => `没有可下载的内容：还有 ${count} 个实体未决定。按 Shift+A 接受其余实体。`,
    downloaded: (count) => `已下载 ${count} 篇审阅过的文本。`, saved: "决定已保存。", failed: "无法连接服务。",
    not_saved: "决定未能保存到服务器：", too_large: "文件大于 8 MB。", nothing: "没有文本。",
  },
};

/** Return the language of a choice, or of the browser. */
export function chooseLanguage(stored) {
  return stored in WORDS ? stored : navigator.language.startsWith("zh") ? "zh" : "en";
}

/** Write the words of a language into all elements that name them. */
export function translate(language) {
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-words]")) element.textContent = WORDS[language][element.dataset.words];
}
