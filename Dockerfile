# Two stages: one with compilers, one with the server and the client alone. The second takes the same
# relocatable bundle that a GPU host takes, so it needs no packages of its own.
#   docker build -t gemmd:cpu .
# With CUDA (the build stage needs nvcc; the driver comes from the host's container toolkit):
#   docker build -t gemmd:cuda --build-arg BUILD_BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04 \
#     --build-arg RUNTIME_BASE=ubuntu:24.04 .
# The two bases must be of one distribution: the C library is the runtime stage's.
ARG BUILD_BASE=debian:12
ARG RUNTIME_BASE=debian:12-slim

FROM ${BUILD_BASE} AS build
WORKDIR /src
COPY deploy/lib.sh deploy/packages.sh deploy/
RUN deploy/packages.sh build bundle
COPY . .
RUN cmake --preset release -DGEMMD_TESTS=OFF \
    && cmake --build build/release --target gemmd gemmctl \
    && deploy/bundle.sh build/gemmd.tar.gz \
    && mkdir /opt/gemmd \
    && tar -xzf build/gemmd.tar.gz -C /opt/gemmd --strip-components=1

FROM ${RUNTIME_BASE}
ARG VERSION=unknown
LABEL org.opencontainers.image.title=gemmd \
      org.opencontainers.image.description="Matrix products over gRPC, on CUDA devices or the CPU" \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=${VERSION}
COPY --from=build /opt/gemmd /opt/gemmd
# For a volume that keeps the tuning file: a new one takes its owner from here.
RUN install -d -o 10001 -g 10001 /var/lib/gemmd
ENV PATH=/opt/gemmd/bin:$PATH \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    GEMMD_LISTEN=0.0.0.0:50051 \
    GEMMD_METRICS=0.0.0.0:9464 \
    GEMMD_LOG_FORMAT=json
USER 10001:10001
EXPOSE 50051 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["/opt/gemmd/bin/gemmctl", "--server", "127.0.0.1:50051", "health"]
# There is no authentication: publish the ports only to a network whose members may all multiply.
ENTRYPOINT ["/opt/gemmd/bin/gemmd", "--allow-remote"]
