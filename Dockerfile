# Two images from the lock file: `docker build --target local .` audits without Java and Spark, `--target spark` on Spark.
FROM python:3.11-slim-bookworm AS build
RUN pip install --no-cache-dir uv==0.13.8
ENV UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=/opt/kafka-audit
WORKDIR /source
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY schemas schemas
COPY parsers parsers
COPY jobs jobs

FROM build AS build-local
RUN uv sync --locked --no-default-groups --no-editable \
    --no-install-package pyspark --no-install-package delta-spark --no-install-package py4j \
    --no-install-package great-expectations --no-install-package pandas --no-install-package scipy --no-install-package altair

FROM build AS build-spark
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
RUN uv sync --locked --no-default-groups --no-editable
# Delta's two jars: later runs need no network
RUN /opt/kafka-audit/bin/python -c 'from jobs.engine.setup import fetch_jars; fetch_jars()'

FROM python:3.11-slim-bookworm AS spark
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home audit
COPY --from=build-spark /opt/kafka-audit /opt/kafka-audit
ENV PATH=/opt/kafka-audit/bin:$PATH KAFKA_AUDIT_MASTER=local[*]
USER 10001
WORKDIR /data
ENTRYPOINT ["kafka-audit"]
CMD ["--help"]

FROM python:3.11-slim-bookworm AS local
RUN useradd --uid 10001 --create-home audit
COPY --from=build-local /opt/kafka-audit /opt/kafka-audit
ENV PATH=/opt/kafka-audit/bin:$PATH
USER 10001
WORKDIR /data
ENTRYPOINT ["kafka-audit"]
CMD ["--help"]
