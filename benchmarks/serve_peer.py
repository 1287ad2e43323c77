"""The peer of `serve.py`: transformers' token-classification pipeline behind a plain FastAPI route, which runs in FastAPI's threads.

python benchmarks/serve_peer.py CHECKPOINT PORT
"""

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline

find = pipeline("token-classification", model=sys.argv[1], aggregation_strategy="simple", device="cpu")
app = FastAPI()


class Question(BaseModel):
    inputs: str


@app.get("/healthz")
async def health() -> str:
    return "ok"


@app.post("/v1/predict")
def predict(question: Question) -> list[dict]:
    return [{**each, "score": float(each["score"])} for each in find(question.inputs)]


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False)
