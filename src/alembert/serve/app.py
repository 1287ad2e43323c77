"""The routes: predictions, vectors, decisions, the state of the service, and the page.

Each handler reads a body within the limits, checks it, waits for its answers without blocking anyone, and writes them.
JSON lines are answered line by line, in their order, with `error` in place of what could not be answered.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from alembert.errors import UserError
from alembert.serve.batcher import Ticket
from alembert.serve.guards import Guard, HeaderCheck, body_too_large, to_response
from alembert.serve.labels import export_records
from alembert.serve.models import Computation, ServiceInput
from alembert.serve.openapi import describe_service
from alembert.serve.service import Service, server_timing, to_problem, unless_disconnected
from alembert.serve.wire import (
    JSON,
    JSON_LINES,
    BadLine,
    ConvertRequest,
    DecisionRequest,
    EmbedRequest,
    ExplainRequest,
    PredictRequest,
    RequestProblem,
    decode,
    decode_lines,
    encode,
    encode_line,
    list_inputs,
)

PAGE: Final = Path(__file__).parent / "page"
_MEDIA_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class Routes:
    """The handlers, over a service."""

    service: Service

    def listed(self) -> list[Route]:
        """Return all routes."""
        return [
            Route("/", self.page, methods=["GET"]),
            Route("/page/{name}", self.page, methods=["GET"]),
            Route("/healthz", self.health, methods=["GET"]),
            Route("/readyz", self.ready, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/predict", self.predict, methods=["POST"]),
            Route("/v1/embed", self.embed, methods=["POST"]),
            Route("/v1/explain", self.explain, methods=["POST"]),
            Route("/v1/decisions", self.decide, methods=["POST"]),
            Route("/v1/labels", self.labels, methods=["GET"]),
            Route("/v1/convert", self.convert, methods=["POST"]),
        ]

    # -- predictions and vectors

    async def predict(self, request: Request) -> Response:
        """Answer texts or objects with the records of `alembert predict --json`."""
        if _content_type(request) == JSON_LINES:
            asked = _parameters(request)
            computation = self._computation(asked)
            return await self._answer_lines(request, computation, asked.model)
        asked = decode(await self._body(request), PredictRequest)
        computation = self._computation(asked)
        inputs = list_inputs(asked.inputs)
        return await self._answer(request, computation, inputs, "predictions", asked.model)

    async def embed(self, request: Request) -> Response:
        """Answer texts with vectors."""
        if _content_type(request) == JSON_LINES:
            name = request.query_params.get("model")
            return await self._answer_lines(request, self.service.find_model(name).embedding(), name)
        asked = decode(await self._body(request), EmbedRequest)
        computation = self.service.find_model(asked.model).embedding()
        return await self._answer(request, computation, list_inputs(asked.inputs), "embeddings", asked.model)

    async def explain(self, request: Request) -> Response:
        """Explain an answer for one text or object."""
        service = self.service
        asked = decode(await self._body(request), ExplainRequest)
        service.check_size([asked.inputs])
        model = service.find_model(asked.model)
        question = {"span": asked.span, "label": asked.label, "method": asked.method}
        computation = model.explaining(question, asked.task, service.settings.max_explain_tokens)
        jobs = await run_in_threadpool(computation.prepare, [asked.inputs])
        ticket = service.submit(computation, [asked.inputs], jobs, [job.tokens for job in jobs])
        return await self._respond(request, ticket, lambda answers: {"model": model.name, "explanation": answers[0]})

    def _computation(self, asked: PredictRequest) -> Computation:
        return self.service.find_model(asked.model).prediction(asked.min_score, asked.min_precision)

    async def _answer(
        self, request: Request, computation: Computation, inputs: Any, key: str, model: str | None
    ) -> Response:
        """Wait for all answers, and write them as one object."""
        service = self.service
        service.check_size(inputs)
        ticket = service.submit(computation, inputs, computation.prepare(inputs))
        name = service.find_model(model).name
        return await self._respond(request, ticket, lambda answers: {"model": name, key: answers})

    async def _respond(
        self, request: Request, ticket: Ticket, content: Callable[[list[Any]], dict[str, Any]]
    ) -> Response:
        """Wait for all answers, and write what is made of them."""
        service = self.service
        try:
            answers = await unless_disconnected(_collect(ticket), _wait_for_disconnect(request))
        finally:
            service.finish(ticket)
        if answers is None:
            return Response(status_code=499)
        for number, answer in enumerate(answers, 1):
            if isinstance(answer, Exception):
                problem = to_problem(answer)
                raise RequestProblem(problem.status, problem.kind, f"Input {number}: {problem}")
        return Response(encode(content(answers)), headers={"server-timing": server_timing(ticket)}, media_type=JSON)

    async def _answer_lines(self, request: Request, computation: Computation, model: str | None) -> Response:
        """Answer each line with a line, as soon as it and all before it are done."""
        service = self.service
        lines = decode_lines(await self._body(request, JSON_LINES))
        service.check_size([line for line in lines if not isinstance(line, BadLine)] or lines)
        prepared = [_prepare_line(computation, line, number) for number, line in enumerate(lines, 1)]
        good = [
            (line, each) for line, each in zip(lines, prepared, strict=True) if not isinstance(each, RequestProblem)
        ]
        ticket = service.submit(computation, [line for line, _ in good], [each for _, each in good])  # type: ignore[misc]
        return StreamingResponse(self._stream(prepared, ticket), media_type=JSON_LINES)

    async def _stream(self, prepared: list[Any], ticket: Ticket) -> AsyncIterator[bytes]:
        answers = ticket.results()
        try:
            for line in prepared:
                answer = line if isinstance(line, RequestProblem) else await anext(answers)
                yield encode_line(to_problem(answer).to_dict() if isinstance(answer, Exception) else answer)
        finally:
            self.service.finish(ticket)

    async def _body(self, request: Request, kind: str = JSON) -> bytes:
        """Read a body of the right type, and no more of it than is allowed."""
        if _content_type(request) != kind:
            raise RequestProblem(
                415,
                "wrong_type",
                f"The Content-Type of the request is not {kind}. Send JSON as {JSON}, JSON lines as {JSON_LINES}.",
            )
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self.service.settings.max_body_bytes:
                raise body_too_large(self.service.settings.max_body_bytes)
        return bytes(body)

    # -- decisions

    async def decide(self, request: Request) -> Response:
        """Append a decision to the file of --label."""
        if self.service.labels is None:
            raise RequestProblem(404, "no_labels", "The server keeps no decisions. Start it with --label FILE.")
        decision = decode(await self._body(request), DecisionRequest)
        record = await run_in_threadpool(self.service.labels.append, decision)
        return Response(encode({"at": record["at"]}), media_type=JSON)

    async def labels(self, request: Request) -> Response:
        """Return the reviewed texts as training data, or in another format."""
        if self.service.labels is None:
            raise RequestProblem(404, "no_labels", "The server keeps no decisions. Start it with --label FILE.")
        records = await run_in_threadpool(self.service.labels.read_reviewed)
        return await _save(records, request.query_params.get("format", "jsonl"))

    async def convert(self, request: Request) -> Response:
        """Return documents as a file in a format of the corpus."""
        asked = decode(await self._body(request), ConvertRequest)
        return await _save(asked.documents, asked.format)

    # -- the state of the service

    async def models(self, request: Request) -> Response:
        """Describe the models."""
        listed = [model.describe() for model in self.service.models.values()]
        return Response(encode({"models": listed, "keeps_labels": self.service.labels is not None}), media_type=JSON)

    async def health(self, request: Request) -> Response:
        """Answer as long as the process does."""
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        """Answer whether requests are answered rightly, from the last check."""
        problem = self.service.find_problem()
        return PlainTextResponse(f"not ready: {problem}\n" if problem else "ready\n", 503 if problem else 200)

    async def metrics(self, request: Request) -> Response:
        """Return the metrics."""
        return Response(self.service.metrics.render(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        """Return the description of the service."""
        return Response(encode(describe_service()), media_type=JSON)

    async def page(self, request: Request) -> Response:
        """Return a file of the page."""
        name = request.path_params.get("name", "index.html")
        if name not in _page_files():
            raise HTTPException(404)
        path = PAGE / name
        return FileResponse(path, media_type=_MEDIA_TYPES[path.suffix], headers={"cache-control": "no-cache"})


def _page_files() -> frozenset[str]:
    return frozenset(path.name for path in PAGE.iterdir() if path.suffix in _MEDIA_TYPES)


def make_app(service: Service, headers: HeaderCheck) -> Starlette:
    """Put the routes, their guard and the answers to errors together."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    guard = Middleware(Guard, headers=headers, metrics=service.metrics, check_queue=service.check_queue)
    return Starlette(
        routes=Routes(service).listed(),
        middleware=[guard],
        lifespan=lifespan,
        exception_handlers={
            HTTPException: _answer_http_error,
            RequestProblem: _answer_error_of(service),
            UserError: _answer_error_of(service),
            ClientDisconnect: _answer_nobody,
        },
    )


def _answer_error_of(service: Service) -> Any:
    async def answer(request: Request, error: Exception) -> Response:
        problem = to_problem(error)
        service.metrics.count("refused_total", reason=problem.kind)
        # The rest of a body that is not wanted is not read.
        return to_response(problem, close=problem.status in (408, 413, 415))

    return answer


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {
        404: "There is nothing at this address. /openapi.json lists what there is.",
        405: f"The method is not for this address; expected {(error.headers or {}).get('Allow', 'another one')}.",
    }
    sentence = sentences.get(error.status_code, "The request cannot be answered.")
    return to_response(RequestProblem(error.status_code, "http", sentence, dict(error.headers or {})))


async def _answer_nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


async def _save(records: Sequence[Mapping[str, Any]], format_name: str) -> Response:
    """Answer with a file to save; the header `alembert-losses` counts what the format could not hold."""
    saved = await run_in_threadpool(export_records, records, format_name)
    headers = {
        "content-disposition": f'attachment; filename="{saved.name}"',
        "alembert-losses": json.dumps(dict(saved.losses)),
    }
    return Response(saved.content, headers=headers, media_type=saved.media_type)


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _parameters(request: Request) -> PredictRequest:
    """Read the query of a request whose body has inputs alone."""
    values = request.query_params
    shares = {}
    for name in ("min_score", "min_precision"):
        try:
            shares[name] = float(values[name]) if name in values else None
        except ValueError:
            raise RequestProblem(422, "bad_request", f"`{name}` of the address is no number from 0 to 1.") from None
    return PredictRequest(inputs=[], model=values.get("model"), **shares)


def _prepare_line(computation: Computation, line: ServiceInput | BadLine, number: int) -> Any:
    """Return the example of a line, or the reason why there is none."""
    if isinstance(line, BadLine):
        return RequestProblem(422, "bad_line", f"Line {number} {line.problem}")
    try:
        (example,) = computation.prepare([line], number)
    except UserError as problem:
        return RequestProblem(422, "bad_input", str(problem))
    return example


async def _collect(ticket: Ticket) -> list[Any]:
    return [answer async for answer in ticket.results()]


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
