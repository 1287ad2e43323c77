"""Scores of predictions, how sure they are and how far they can be trusted; numpy alone, so that exported models can be
scored where there is no torch. Each module is for one kind of answer, `bootstrap` and `calibration` for all."""
