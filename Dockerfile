# syntax=docker/dockerfile:1
#
# One image per binary, without a shell:
#
#     docker build --build-arg SERVICE=gateway -t payments/gateway .
#
# SERVICE is one of gateway, merchants-svc, sessions-svc, charges-svc, webhooks-svc, ratelimit-svc,
# railsim, payctl, loadtest. Everything is compiled once: the argument is only used after that, so all
# nine images share every layer but the last.
#
# The base images are pinned by tag. If you mirror them, pin digests too.

FROM rust:1.94-slim-bookworm AS rust
# Turns the workspace into a recipe of only its dependencies, so that compiling them is a layer that
# only Cargo.toml and Cargo.lock invalidate.
RUN cargo install --locked cargo-chef --version 0.1.78
WORKDIR /src

FROM rust AS recipe
COPY . .
RUN cargo chef prepare --recipe-path recipe.json

FROM rust AS build
COPY --from=recipe /src/recipe.json .
# Without the simulation, which enables tokio's `test-util`, whose clock can be stopped.
ARG PACKAGES="-p gateway -p merchants-svc -p sessions-svc -p charges-svc -p webhooks-svc -p ratelimit-svc -p railsim -p payctl -p loadtest"
RUN cargo chef cook --locked $PACKAGES --bins --profile dist --recipe-path recipe.json
COPY . .
RUN cargo build --locked $PACKAGES --bins --profile dist

# The binary keeps its name, which the database shows as the client's. /app is the same in all images.
FROM build AS root
ARG SERVICE
RUN test -n "$SERVICE" \
    && install -D "target/dist/$SERVICE" "/root-of-image/usr/local/bin/$SERVICE" \
    && ln -s "/usr/local/bin/$SERVICE" /root-of-image/app

FROM gcr.io/distroless/cc-debian12:nonroot
ARG SERVICE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="$SERVICE" \
      org.opencontainers.image.description="Payments for Ghana: $SERVICE" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=root /root-of-image/ /
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["/app"]
