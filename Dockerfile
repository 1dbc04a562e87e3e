# The operator's image, without Pulumi, which the operator never loads. Build it with scripts/build-image, which
# makes the wheel first: what is not in dist/ is not in the image.
# By digest, so that a build of a commit begins with the same bytes; .github/dependabot.yml has it follow the tag.
ARG PYTHON_IMAGE=docker.io/library/python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea

FROM ${PYTHON_IMAGE} AS build
COPY requirements-operator.lock dist/*.whl /build/
RUN python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps \
      --target /opt/eurekube -r /build/requirements-operator.lock \
 && python -m pip install --no-cache-dir --disable-pip-version-check --no-index --no-deps \
      --target /opt/eurekube /build/*.whl \
 && rm -r /opt/eurekube/bin

FROM ${PYTHON_IMAGE}
ARG VERSION
LABEL org.opencontainers.image.title="eurekube-operator" \
      org.opencontainers.image.description="Keeps the endpoints of Kubernetes Services registered in Netflix Eureka" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# Nothing is written: neither bytecode nor anything else, so that the root file system may be read only.
ENV PYTHONPATH=/opt/eurekube PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
COPY --from=build /opt/eurekube /opt/eurekube
# The image's own installer is of no use here.
RUN python -m pip uninstall --yes --quiet pip
# A number, so that Kubernetes can tell that it is not root.
USER 65532:65532
WORKDIR /
ENTRYPOINT ["python", "-m", "eurekube_provider.operator"]
