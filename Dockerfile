# The service in a container. The store and the visitor key live outside of it.
FROM python:3.12-slim
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir -c constraints.txt '.[postgres]' \
    && useradd --system --create-home deniable
USER deniable
WORKDIR /home/deniable
ENV DENIABLE_HOST=0.0.0.0
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s CMD \
    ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["deniable"]
CMD ["serve"]
