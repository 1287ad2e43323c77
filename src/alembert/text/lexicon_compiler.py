"""Compile lexicons into the tables of a gazetteer, without the words that look like terms and almost never are.

Gene and drug lexicons hold symbols that are spelt like English words ("WAS", "CAT", "REST"), units ("MG") or statistics
("CI"); phenotype lexicons hold plain adjectives ("severe", "left"). A term that is, as a whole, one of these words is
not matched. `find_ordinary_words` finds more such words in the user's own corpus. Single characters and bare numbers are
never matched either. `--keep-terms` allows a word again, `--stop-terms` adds more.

In: lexicons in order of precedence, and which of their terms are not looked for. Out: arrays, and counts of what was left
out. All spellings are hashed, sorted and grouped by whole-array operations: half a million terms take two to three seconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alembert.text.lexicon import CASE_EXACT, Lexicon, choose_case_rule, list_spellings, strip_hyphens
from alembert.text.term_tables import MAX_SPELLINGS, GazetteerTables, StringTable, TermTable, Trie, TrieEntries
from alembert.text.wordhash import HYPHENS, IndexArray, fold_case, hash_words

_LETTERS = re.compile(r"(?<!\w)[^\W\d_]{2,}(?!\w)")

FUNCTION_WORDS = """
a about above across after again against ago all almost alone along already also although always am among an and another
any anyone anything are around as aside at away back be became because become been before behind being below beneath
beside besides best better between beyond both but by came can cannot come could did do does doing done down during each
either else en et even ever every few first for from further get gets go goes gone got had has have having he hence her
here hers him his how however i if in indeed into is it its itself just last least less let like many may me might mine
more most much must my near never next no nor not now of off often on once one only onto or other our out over own past
per plus rather re same she should since so some soon still such than that the their them then there these they this
those though three through thus till to too toward two under until up upon us use very via vs was we well were what when
where which while who whom whose why will with within without would yes yet you your
al am as at be by co de di el en et go he if ii iii iv ix in is it la le me my no of on or so to tri up us vi vii viii
vs we xi xii
"""

CHINESE_FUNCTION_WORDS = """
的 了 和 与 及 或 在 是 有 为 以 于 之 其 也 都 就 而 但 被 把 从 到 对 不 没 没有 不是 无 非 未 我 你 他 她 它 我们 你们 他们
这 那 这个 那个 什么 怎么 怎么办 怎样 如何 吗 呢 吧 啊 着 过 地 得 很 会 能 可以 可能 要 应该 因为 所以 如果 还 还是 又 再 上 下 中
里 个 一 一个 两 二 三 四 五 六 七 八 九 十 百 千 万 几
"""

COMMON_WORDS = """
act acts add age aged aid aide aim air alert amber angel ant ants ape apex apple apt arc arch area arena ark arm arms army
art ash ask atlas aware axis baby bad bag ball band bank bar bare bark barn bars base bases bat bath bay beam bean bear
beat bed bee bees bell belt bend bent bet big bike bind bird birds bit bite black blast blind block blocks blue board boat
bold bolt bond bone book boom boost born boss bow box boxes boy boys brace bread break brick bridge brief bright bring
broad brush bud bug build bulk bull burn bus buy cab cage cake call calls calm camel camp cap cape caps car card care
carp case cases cast cat cats catch cave cell cells chair chance change chart chase check chief child chip chips city
claim clamp clan class claw clay clean clear clip clips clock close cloud club clue coal coast coat code coil coin cold
cool cope core corn cost count course court cover cow cows crab craft crane cream crest crop cross crowd crown cry cube
cup cure curl curve cut cuts cycle dam damage dams dance danger dare dark dart dash data date dawn day days dead deal
dear debt deck deep deer den desk dial dice die diet dig digit dip dirt disc dish dive dock dog dogs door dose dot dots
double dove draft drag draw dream dress drift drill drip drive drop drum dry dual duck due duo dusk dust duty eagle ear
ears earth ease east easy eat echo edge egg eggs ego eight end ends entry era even event evil exit eye eyes face faces
fact facts fade fail fair faith fall fame fan fang far farm fast fat fate fear feat fed feed feel feet fell felt fence
fern few field fig figure file fill film find finds fine fire firm fish fist fit fits five fix flag flame flap flash flat
fleet flex flick flip float flood floor flow flower flows fly foam fold folk food foot force forest fork form forms fort
forum four fox frame free fresh fried frog front frost fruit fuel full fun fund fur fuse gain game gap gaps gas gate gates
gave gear gem gene genes giant gift girl give given glass glow glue goal goat gold good grab grace grade grain grand
grape grass gray great green grew grey grid grim grip group grow gum gun guy gut guts hair half hall halo halt hand hands
hang hard hare harm harp hat hawk head heads heap hear heart heat heavy held help hen herb herd hero hers hide high hill
hint hip hips hit hits hold hole holes home hook hop hope horn horse host hot hour hours house hub hug huge hull human
hung hunt ice icon idea idol image impact index inner ion ions iris item jar jaw jet job join joint joke judge jump junk
keen keep kept key keys kick kid kids kill killer kin kind king kiss kit kite kits knee knew knife knock knot know lab
labs lace lack lad lag lake lamb lamp land lane large laser lash late lava law lawn laws lay layer lead leads leaf
leak leap led left leg legs lend lens letter level levels lid lie life lift light lights limb limbs lime limit limits line
lines link links lion lip lips list lists lit live lives load loan lobe local lock log logic logo long look loop loops
loose lord lose loss lost lot lots loud love low luck lump lung lunch made magic mail main make male males mall man mane
map maps mark marks mars mask mass mast mat match mate max maze meal mean means meat meet melt men menu mere mesh mess met
metal mice mid mild mile milk mill mind minor mint minus mirror mist mix mob mode model moist mole mood moon moss moth
motif mouse mouth move mud mug must mute nail name names nap neat neck need nerd nest nests net nets new news nice night
nil nine node noise none noon norm north nose note notes noun nova novel nude null nut nuts oak oar oat oats odd off oil
old open opt oral orb order out oval oven over owl owls own pace pack pad page pair pairs pal palm pan panel pants
park part parts pass past paste pat patch path pause pay pea peak pear peer pen pet pets phase phone pick pie piece pig
pigs pike pile pilot pin pine pink pins pipe pit pitch place plan plane plant plate play plot plots plow plug plum plus
point points pole poll pond pool poor pop pore port pose post pot pour power prep press prey pride prime print prize probe
proof puff pull pulse pump pure push put race rack raft rag rage rail rain ram ramp ran range rank ranks rap rare rat
rate rates rats raw ray rays reach read real rear red reed reef reel rein rely rent rest rests rib ribs rice rich ride
rig right rim ring rings rise risk road roar robe robin rock rod rode rods role roll roof room root roots rope rose rosy
rotate rough round row rows rub ruby rug rule run runs rush rust safe saga sage said sail sale salt sand sat save saw say
scale scan scar scars scene scope score scores scout screen sea seal search seat see seed seeds seek seen self sell send
sense sent set sets seven sex shade shape share shark sharp shed sheep sheet shelf shell ship shoe shop shore short
shot shots show shown shut sick side sides sign signs silk simple sing sink sit site sites six size sizes skate skin skip
skull sky slab slam slave sleep slice slices slide slim slip slit slot slow slug small smart smell smile smoke snail snake
snap snow soak soap sock soda soft soil sole solid solo son song sort soul sound soup sour south space span spare spark
spatial speak speed spell spend spike spikes spin spine spiral split spot spots spray spring spy square stable stack staff
stage stain stair stake stamp stand star stars start state states stay steel steep stem step steps stick stiff still sting
stir stock stone stool stop stops store storm strain straw stream street strip strong study suit sum sun sure surf swap
sweet swim swing sword table tables tag tags tail take taken tale talk tall tame tank tap tape target task tasks taste tax
tea team tear tech teeth tell ten tend tens tent term terms test tests text thick thin thing think thorn thread three tick
tide tie tied tier ties tight tile time times tin tiny tip tips tire title toad tobacco today toe toll tomato tone tool top
torch toss total touch tour tower town toy trace track trade trail train trait traits trap traps tray tree trees trend trial
trials trim trip true trunk trust try tube tubes tug tune turn twig twin twins twist type types unit units urge user vain
valid value van vast vein vent verb vest view void vote wage wait wake walk wall walls want war warm wash wasp waste watch
wave waves wax way ways weak wear web wed week weeks weigh west wet whale wheat wheel whip white wide wife wild win wind
wine wing wings wire wise wish wolf woman women won wood wool word words work works world worm worms worn worst wrap wrist
write wrong year years yellow young zero zone zones zoo
"""

RESEARCH_WORDS = """
abnormal acquired acute adult adverse affected apical axial balance bilateral biomarker biomarkers buffer capture central chronic common
complete condition conditions congenital control diffuse distal dissociation early elements element emergency episodic
excluded familial focal frequency frequent generalized genetic healthy hereditary infectious inherited intensity
intermittent late lateral laterality ligand ligands localized
mild mitochondrial moderate mosaic normal occasional oncology onset particle peripheral position profound progressive prolonged protein proteins
proximal rabbit recurrent refractory secondary severe severity solution solutions sporadic stable transient unaffected unilateral variable
disease diseases disorder disorders syndrome syndromes illness drug drugs enzyme enzymes peptide peptides acid acids
"""

STOP_PHRASES = ("part of", "parts of", "improved by", "triggered by", "worsened by", "health status", "clinical course")

UNITS_AND_STATISTICS = """
aa bp ca cf ci cm com cv df dl dpi ed eds eg etc fps gb gmbh gov gr hr hrs hz inc kb kda kg km lb li lt ltd mb md mg min
mins ml mm mol ms ng nm no nov ns oct dec jan feb mar apr jun jul aug sep sept or pg ph phd ps px rpm rr sd se sec sem
si sn spp st tx ul usa uk eu vol yr yrs anova ref refs sup suppl supp fig figs
"""

METHODS_AND_SUBJECTS = """
bmi ct ecg eeg elisa emg fmri icu ko mri pbs pcr wt 1d 2d 3d chicken yeast
"""

STOP_WORDS = frozenset(
    word
    for part in (FUNCTION_WORDS, COMMON_WORDS, RESEARCH_WORDS, UNITS_AND_STATISTICS, METHODS_AND_SUBJECTS)
    for word in part.split()
) | frozenset(STOP_PHRASES)


def find_ordinary_words(texts: Iterable[str], per_million: float = 10.0) -> frozenset[str]:
    """Find the words that a corpus has often in lower case, and more often than in capitals.

    `Gazetteer.from_lexicons` takes them as `ordinary`: symbols that are spelt like them are not matched.

    >>> sorted(find_ordinary_words(["the mice and the CAT", "mice MICE cat"]))
    ['and', 'mice', 'the']
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(_LETTERS.findall(text))
    least = per_million * counts.total() / 1_000_000
    return frozenset(
        word for word, count in counts.items() if word.islower() and count >= least and count > counts[word.upper()]
    )


_LONGEST_NUMBER = 12
_SEPARATORS = re.compile(rf"[\s{re.escape(HYPHENS)}]+")

_Spelling = tuple[str, int, str]
"""A term or one of its spellings, the number of its lexicon, and its concept; plain, since there are hundreds of thousands."""


@dataclass(frozen=True)
class GazetteerCounts:
    """Counts of the rows of the lexicons."""

    rows: int
    stopped: int
    """Rows left out because their term is an ordinary word, a single character or a bare number."""
    turned: int
    """Spellings added for inverted names."""

    def warnings(self) -> list[str]:
        if not self.stopped:
            return []
        return [
            "terms of the lexicons that are ordinary words, single characters or bare numbers, and are not looked for: "
            f"{self.stopped:,} of {self.rows:,}"
        ]


def make_stop_list_key(term: str) -> str:
    """Normalise a term for comparison with stop lists: folded, with spaces for hyphens."""
    return _SEPARATORS.sub(" ", fold_case(term)).strip()


@dataclass(frozen=True)
class StopFilter:
    """Decides which terms are not matched."""

    stopped: frozenset[str]
    exceptions: frozenset[str]
    ordinary: frozenset[str]
    longest: int

    @classmethod
    def from_lists(cls, stop: Iterable[str], keep: Iterable[str], ordinary: Iterable[str]) -> StopFilter:
        stopped, exceptions, common = (frozenset(map(make_stop_list_key, words)) for words in (stop, keep, ordinary))
        return cls(stopped, exceptions, common, max([_LONGEST_NUMBER, *map(len, stopped | common)]))

    def excludes(self, term: str) -> bool:
        """Return whether a term is left out."""
        if len(term) > self.longest:
            return False
        key = make_stop_list_key(term)
        if key in self.exceptions:
            return False
        if len(key) == 1 or key.isdecimal() or key in self.stopped:
            return True
        return key in self.ordinary and choose_case_rule(term) == CASE_EXACT


def compile_lexicons(lexicons: Sequence[Lexicon], stops: StopFilter) -> tuple[GazetteerTables, GazetteerCounts]:
    """Build the tables of the terms that are looked for."""
    rows = sum(len(lexicon.terms) for lexicon in lexicons)
    terms = [
        (term, order, concept)
        for order, lexicon in enumerate(lexicons)
        for term, concept in lexicon.terms
        if not stops.excludes(term)
    ]
    spelt = [list_spellings(term) if "," in term else [term] for term, _, _ in terms]  # most calls have nothing to do
    spellings = [
        (text, order, concept) for texts, (_, order, concept) in zip(spelt, terms, strict=True) for text in texts
    ]
    trie, ends = _build_trie([text for text, _, _ in spellings])
    entries, entry_of = _group_entries(spellings, ends, len(trie.final))
    counts = GazetteerCounts(rows, rows - len(terms), len(spellings) - len(terms))
    return GazetteerTables(trie, entries, _list_terms(terms, [len(texts) for texts in spelt], entry_of)), counts


def _build_trie(spellings: list[str]) -> tuple[Trie, NDArray[np.int32]]:
    """Split all spellings into words, many at a time, and build their trie."""
    hashes, lengths = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.int64)]
    for begin in range(0, len(spellings), 4096):
        texts = spellings[begin : begin + 4096]
        words = hash_words("\n".join(texts))
        borders = np.cumsum([len(text) + 1 for text in texts])
        owner = np.searchsorted(borders, words.starts, side="right")
        hashes.append(words.hashes)
        lengths.append(np.bincount(owner, minlength=len(texts)))
    return Trie.from_words(np.concatenate(hashes), np.concatenate(lengths))


def _list_terms(terms: list[_Spelling], spellings: list[int], entry_of: IndexArray) -> TermTable:
    """Put terms into a table, with the entries of their spellings, whose numbers are in the same order."""
    sizes = np.array(spellings, np.int64)
    last = np.cumsum(sizes) - 1
    columns = [entry_of[np.maximum(last - back, last - sizes + 1)] for back in range(MAX_SPELLINGS)]
    return TermTable(
        labels=np.array([order for _, order, _ in terms], np.uint8),
        entries=np.stack(columns, axis=1).astype(np.int32),
        texts=StringTable.from_strings([term for term, _, _ in terms]),
    )


def _group_entries(spellings: list[_Spelling], ends: NDArray[np.int32], nodes: int) -> tuple[TrieEntries, IndexArray]:
    """Group the spellings that match alike (same words, lexicon and case); return also the group of each spelling."""
    orders = np.array([order for _, order, _ in spellings], np.int64)
    rules = np.array([choose_case_rule(text) for text, _, _ in spellings], np.int64)
    surfaces, surface_of = _number_surfaces(spellings, rules)
    first_of, group_of = _number_groups(ends.astype(np.int64), orders, rules, surface_of)
    concepts, concept_of = _number_concepts(spellings)
    concept_borders, concept_numbers = _collect_concepts(concept_of, group_of, len(first_of))
    entries = TrieEntries(
        first=np.searchsorted(ends[first_of], np.arange(nodes + 1)).astype(np.int32),
        labels=orders[first_of].astype(np.uint8),
        cases=rules[first_of].astype(np.uint8),
        surfaces=surface_of[first_of].astype(np.int32),
        concept_borders=concept_borders,
        concept_numbers=concept_numbers,
        surface_texts=StringTable.from_strings(surfaces),
        concept_texts=StringTable.from_strings(concepts),
    )
    return entries, group_of


def _number_surfaces(spellings: list[_Spelling], rules: IndexArray) -> tuple[list[str], IndexArray]:
    """Number the spellings whose case matters, as `case_agrees` compares them; all others are number 0."""
    numbers = {"": 0}
    surface_of = np.zeros(len(spellings), np.int64)
    for place in np.flatnonzero(rules).tolist():
        surface_of[place] = numbers.setdefault(strip_hyphens(spellings[place][0]), len(numbers))
    return list(numbers), surface_of


def _number_concepts(spellings: list[_Spelling]) -> tuple[list[str], IndexArray]:
    """Number the concepts; the first is none."""
    numbers = {"": 0}
    concept_of = [numbers.setdefault(concept, len(numbers)) for _, _, concept in spellings]
    return list(numbers), np.array(concept_of, np.int64)


def _number_groups(nodes: IndexArray, *others: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Number the distinct lines of columns; return where each number occurs first, and the number of each line.

    Numbers are in the order of nodes, then of lexicons, then of the first occurrence.
    """
    columns = (nodes, *others)
    order = np.lexsort(columns[::-1])
    is_new = np.zeros(len(order), bool)
    is_new[:1] = True
    for column in columns:
        is_new[1:] |= np.diff(column[order]) != 0
    first_of = order[is_new]  # the sort is stable
    rank = np.lexsort((first_of, others[0][first_of], nodes[first_of]))
    number_of = np.empty(len(rank), np.int64)
    number_of[rank] = np.arange(len(rank))
    group_of = np.empty(len(order), np.int64)
    group_of[order] = number_of[np.cumsum(is_new) - 1]
    return first_of[rank], group_of


def _collect_concepts(
    concept_of: IndexArray, group_of: IndexArray, groups: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """List the concepts of each group, each once, in the order of their first spelling; return their borders, too."""
    named = np.flatnonzero(concept_of)
    _, first = np.unique((group_of[named] << 32) | concept_of[named], return_index=True)
    kept = named[np.sort(first)]
    kept = kept[np.argsort(group_of[kept], kind="stable")]
    borders = np.searchsorted(group_of[kept], np.arange(groups + 1))
    return borders.astype(np.int32), concept_of[kept].astype(np.int32)
