# The service in a container. The SQLite file and the visitor key live in the volume /data.
FROM python:3.12-slim
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir -c constraints.txt '.[server,postgres]' \
    && useradd --system --create-home deniable \
    && install -d -o deniable -g deniable -m 0700 /data
USER deniable
WORKDIR /data
VOLUME /data
ENV DENIABLE_HOST=0.0.0.0 DENIABLE_STORE=sqlite:////data/deniable.db
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s CMD \
    ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["deniable"]
CMD ["serve"]
