# berth in one image; the command says which process it is: worker, relay, api, init, ...
FROM python:3.12-slim

RUN useradd --create-home --uid 10001 berth
WORKDIR /app

COPY pyproject.toml README.md ./
COPY domain domain
COPY services services
COPY migrations migrations
COPY ops ops
RUN pip install --no-cache-dir .

USER berth
WORKDIR /home/berth
ENV PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/home/berth/.cache/numba

EXPOSE 8080
ENTRYPOINT ["berth"]
CMD ["--help"]
