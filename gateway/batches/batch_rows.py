"""Batches as rows: encoded, found, written back."""

import sqlite3

import msgspec

from gateway.batches.batch import Batch
from gateway.batches.errors import UnknownBatch

_encode = msgspec.json.Encoder().encode
decode_batch = msgspec.json.Decoder(Batch).decode


def insert_batch(connection: sqlite3.Connection, batch: Batch) -> None:
    """Store a new batch."""
    connection.execute(
        "INSERT INTO batches (id, tenant, input_file_id, is_open, created_at, data) VALUES (?, ?, ?, ?, ?, ?)",
        (batch.id, batch.identity.tenant, batch.input_file_id, batch.is_open, batch.created_at, _encode(batch)),
    )


def find_batch(connection: sqlite3.Connection, tenant: str, id: str) -> Batch:
    """Read a tenant's batch. Raises UnknownBatch."""
    row = connection.execute("SELECT data FROM batches WHERE tenant = ? AND id = ?", (tenant, id)).fetchone()
    if row is None:
        raise UnknownBatch(id)
    return decode_batch(row[0])


def save_batch(connection: sqlite3.Connection, batch: Batch) -> None:
    """Write a batch back. One that has ended loses its lease."""
    query = "UPDATE batches SET data = ?, is_open = ?, lease_until = iif(?, lease_until, 0) WHERE id = ?"
    connection.execute(query, (_encode(batch), batch.is_open, batch.is_open, batch.id))
