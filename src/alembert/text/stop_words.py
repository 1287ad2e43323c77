"""Stop words: words that look like terms of a lexicon and almost never are.

Gene and drug lexicons hold symbols that are spelt like English words ("WAS", "CAT", "REST"), units ("MG") or statistics
("CI"); phenotype lexicons hold plain adjectives ("severe", "left"). A term that is, as a whole, one of these words is
not matched. `find_ordinary_words` finds more such words in the user's own corpus. Single characters and bare numbers are
never matched either. `--keep-terms` allows a word again, `--stop-terms` adds more.
"""

import re
from collections import Counter
from collections.abc import Iterable

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
