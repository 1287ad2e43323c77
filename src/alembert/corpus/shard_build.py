"""Corpus and tokenizer to Shards: each document cut into pieces once, with its words, sentences and entities marked.

In: a Corpus, a Tokenizer, a folder for results, and how Chinese is cut into words. Out: Shards under a name that is made
of the content of all these, so that what was built before is found again and nothing is ever built over. Worker
processes take the parts of the corpus one by one and stage each as one file; these are then joined in order. A build
that was killed goes on with the parts it lacks, and the bytes depend on neither the kill nor the number of workers.

Memory is that of one part for each worker. The trade-off: during the joining, the tokens are on the disk twice.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from alembert import artifact
from alembert.corpus import crew
from alembert.corpus.jobs import Progress
from alembert.corpus.shard_pieces import Cutter, Piece_Arrays
from alembert.corpus.shards import FORMAT, KIND, Shards, array_types
from alembert.corpus.store import Corpus
from alembert.errors import BadFile, Busy, MissingExtra
from alembert.text.tokenizer import Tokenizer
