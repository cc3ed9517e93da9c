# The service in an image of its own, which needs no network when it runs:
#
#   docker build -t iknow .
#   docker run --rm --read-only --tmpfs /tmp --stop-timeout 30 -p 127.0.0.1:8000:8000 \
#     -v "$PWD/bundles:/bundles:ro" -v iknow-data:/data -e IKNOW_TOKENS="me admin $(openssl rand -hex 32)" \
#     iknow signs.iknow --audit /data/answers.db
#
# It listens beyond the container, so it asks for tokens.

FROM python:3.11.13-slim-bookworm AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1


FROM base AS builder
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY constraints.txt ./
# Every package has the version and one of the hashes in constraints.txt: first those that run, then
# those that only build the wheel.
RUN python -m venv --without-pip /opt/iknow \
 && python -m venv --without-pip /opt/builder \
 && sed -e '/^# What its development needs/,$d' -e '/^# What installs it/,/^# What its service/d' \
      constraints.txt > running.txt \
 && sed -n '/^# What installs it/,/^# What its service/p' constraints.txt > building.txt \
 && pip --python /opt/iknow/bin/python install --no-compile --require-hashes --no-deps \
      --only-binary :all: --requirement running.txt \
 && pip --python /opt/builder/bin/python install --require-hashes --no-deps \
      --only-binary :all: --requirement building.txt
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /opt/builder/bin/hatchling build -t wheel -d dist \
 && pip --python /opt/iknow/bin/python install --no-deps --no-index dist/*.whl \
 && /opt/iknow/bin/python -m compileall -q /opt/iknow/lib


FROM base
# The compiled search is trusted only by the user who compiled it: run as this user, or it is compiled
# again at each start.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent \
      --shell /usr/sbin/nologin iknow \
 && install -d -o iknow -g iknow -m 0700 /opt/cache /data \
 && install -d /bundles
COPY --from=builder /opt/iknow /opt/iknow
ENV PATH=/opt/iknow/bin:$PATH XDG_CACHE_HOME=/opt/cache ORT_DISABLE_TELEMETRY=1
USER 10001:10001
# For the processor that builds the image; on another kind it is compiled once more, before /readyz.
RUN iknow warm-up && iknow --version
WORKDIR /bundles
EXPOSE 8000
# With --ssl-certfile give another: docker run --health-cmd.
HEALTHCHECK --interval=10s --timeout=4s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=3)"]
ENTRYPOINT ["iknow", "serve", "--host", "0.0.0.0", "--port", "8000"]
