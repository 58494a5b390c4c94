// Written by 'npm run schemas' from schemas/*.avsc.

/**
 * The Avro schemas of requests and replies, by file name. Files would be lost when a service bundles the client, and
 * modules they can't be: Node imports JSON by the extension .json alone, and Rollup not without a plugin.
 */
export const SCHEMAS = {
  'id-reply-2': `{
  "type": "record",
  "name": "IdReply",
  "namespace": "idalloc",
  "doc": "The answer to one IdRequest, which may be numbers of a sequence. The same request gets the same bytes, however often it is read. Replies without numbers have the first schema, id-reply.avsc.",
  "fields": [
    {
      "name": "correlation_id",
      "type": "bytes",
      "doc": "The request's correlation ID, byte for byte; also the record's key."
    },
    {
      "name": "result",
      "doc": "The batch, the numbers, or the reason why there are none.",
      "type": [
        {
          "type": "record",
          "name": "IdBatch",
          "doc": "IDs that no other request gets, with the evidence of who allocated them.",
          "fields": [
            {
              "name": "ranges",
              "doc": "The IDs as runs in rising order; empty when the request asked for IDS.",
              "type": {
                "type": "array",
                "items": {
                  "type": "record",
                  "name": "IdRange",
                  "doc": "The IDs first, first + step, ... first + (count - 1) * step.",
                  "fields": [
                    { "name": "first", "type": "long", "doc": "The lowest ID of the run, a full 64-bit integer." },
                    { "name": "count", "type": "int", "doc": "How many IDs the run has; at least 1." }
                  ]
                }
              }
            },
            {
              "name": "ids",
              "doc": "Every ID in rising order; empty when the request asked for RANGES. Exactly one of ranges and ids is filled.",
              "type": { "type": "array", "items": "long" }
            },
            { "name": "step", "type": "long", "doc": "Distance between neighbouring IDs of a run; set by the layout, 1 in most." },
            { "name": "datacenter_id", "type": "int", "doc": "The datacenter field of every ID here; 0 where the layout has none." },
            { "name": "worker_id", "type": "int", "doc": "The leased worker field of every ID here." },
            {
              "name": "fence",
              "type": "long",
              "doc": "Create revision of the worker's owner key in etcd; a later holder of the same worker ID has a higher one."
            },
            {
              "name": "epoch",
              "type": { "type": "long", "logicalType": "timestamp-millis" },
              "doc": "The moment from which the layout counts its ticks."
            },
            {
              "name": "layout_fingerprint",
              "type": { "type": "fixed", "name": "LayoutFingerprint", "size": 8 },
              "doc": "Identifies the ID layout (widths, order, tick, epoch), most significant byte first."
            },
            {
              "name": "generated_at",
              "type": { "type": "long", "logicalType": "timestamp-millis" },
              "doc": "The allocating worker's wall clock at the allocation."
            }
          ]
        },
        {
          "type": "record",
          "name": "IdError",
          "doc": "Why there are no IDs.",
          "fields": [
            { "name": "code", "type": "string", "doc": "One of the documented error codes, such as CONFLICT. New codes may be added." },
            { "name": "message", "type": "string", "doc": "For people: the cause and, where there is one, the remedy." }
          ]
        },
        {
          "type": "record",
          "name": "SequenceBatch",
          "doc": "Numbers of a sequence: first, first + step, ... first + (count - 1) * step. No other request gets them.",
          "fields": [
            { "name": "sequence", "type": "string", "doc": "The name of the sequence." },
            { "name": "first", "type": "long", "doc": "The lowest of the numbers; the highest is at most 2^53 - 1." },
            { "name": "count", "type": "int", "doc": "How many numbers; at least 1." },
            { "name": "step", "type": "long", "doc": "Distance between neighbouring numbers; at least 1." },
            { "name": "format", "type": "string", "doc": "How to write a number, such as INV-{number:6}; empty for plain digits." }
          ]
        }
      ]
    }
  ]
}
`,
  'id-reply': `{
  "type": "record",
  "name": "IdReply",
  "namespace": "idalloc",
  "doc": "The answer to one IdRequest. The same request gets the same bytes, however often it is read.",
  "fields": [
    {
      "name": "correlation_id",
      "type": "bytes",
      "doc": "The request's correlation ID, byte for byte; also the record's key."
    },
    {
      "name": "result",
      "doc": "Either the batch or the reason why there is none.",
      "type": [
        {
          "type": "record",
          "name": "IdBatch",
          "doc": "IDs that no other request gets, with the evidence of who allocated them.",
          "fields": [
            {
              "name": "ranges",
              "doc": "The IDs as runs in rising order; empty when the request asked for IDS.",
              "type": {
                "type": "array",
                "items": {
                  "type": "record",
                  "name": "IdRange",
                  "doc": "The IDs first, first + step, ... first + (count - 1) * step.",
                  "fields": [
                    { "name": "first", "type": "long", "doc": "The lowest ID of the run, a full 64-bit integer." },
                    { "name": "count", "type": "int", "doc": "How many IDs the run has; at least 1." }
                  ]
                }
              }
            },
            {
              "name": "ids",
              "doc": "Every ID in rising order; empty when the request asked for RANGES. Exactly one of ranges and ids is filled.",
              "type": { "type": "array", "items": "long" }
            },
            { "name": "step", "type": "long", "doc": "Distance between neighbouring IDs of a run; set by the layout, 1 in most." },
            { "name": "datacenter_id", "type": "int", "doc": "The datacenter field of every ID here; 0 where the layout has none." },
            { "name": "worker_id", "type": "int", "doc": "The leased worker field of every ID here." },
            {
              "name": "fence",
              "type": "long",
              "doc": "Create revision of the worker's owner key in etcd; a later holder of the same worker ID has a higher one."
            },
            {
              "name": "epoch",
              "type": { "type": "long", "logicalType": "timestamp-millis" },
              "doc": "The moment from which the layout counts its ticks."
            },
            {
              "name": "layout_fingerprint",
              "type": { "type": "fixed", "name": "LayoutFingerprint", "size": 8 },
              "doc": "Identifies the ID layout (widths, order, tick, epoch), most significant byte first."
            },
            {
              "name": "generated_at",
              "type": { "type": "long", "logicalType": "timestamp-millis" },
              "doc": "The allocating worker's wall clock at the allocation."
            }
          ]
        },
        {
          "type": "record",
          "name": "IdError",
          "doc": "Why there are no IDs.",
          "fields": [
            { "name": "code", "type": "string", "doc": "One of the documented error codes, such as CONFLICT. New codes may be added." },
            { "name": "message", "type": "string", "doc": "For people: the cause and, where there is one, the remedy." }
          ]
        }
      ]
    }
  ]
}
`,
  'id-request-2': `{
  "type": "record",
  "name": "IdRequest",
  "namespace": "idalloc",
  "doc": "Asks for one batch of IDs, or for numbers of a sequence. What a record header says already may be left null here; what is said twice must agree. Without a request ID and a sequence, send the first schema, id-request.avsc, which older workers read too.",
  "fields": [
    {
      "name": "count",
      "type": "long",
      "doc": "How many IDs or numbers: 1 up to the layout's largest batch. A long, so that a number far too large is understood and refused as a count."
    },
    {
      "name": "correlation_id",
      "type": ["null", "bytes"],
      "default": null,
      "doc": "1 to 256 opaque bytes that the reply repeats. They also name the request, unless it has a request ID."
    },
    {
      "name": "reply_topic",
      "type": ["null", "string"],
      "default": null,
      "doc": "The Kafka topic that the reply goes to."
    },
    {
      "name": "expires_at",
      "type": ["null", { "type": "long", "logicalType": "timestamp-millis" }],
      "default": null,
      "doc": "After this moment the requester no longer wants new IDs. A request that was answered before still gets its batch."
    },
    {
      "name": "encoding",
      "type": [
        "null",
        {
          "type": "enum",
          "name": "Encoding",
          "symbols": ["RANGES", "IDS"],
          "doc": "RANGES: first and count of each run. IDS: every single ID."
        }
      ],
      "default": null,
      "doc": "How the reply lists the IDs; null means RANGES."
    },
    {
      "name": "request_id",
      "type": ["null", "bytes"],
      "default": null,
      "doc": "1 to 256 opaque bytes that name this request, where each try has another correlation ID. A request repeated under the same bytes gets the same batch."
    },
    {
      "name": "sequence",
      "type": ["null", "string"],
      "default": null,
      "doc": "The sequence to number from: 1 to 64 of A-Z a-z 0-9 . _ / -. Null for IDs."
    }
  ]
}
`,
  'id-request': `{
  "type": "record",
  "name": "IdRequest",
  "namespace": "idalloc",
  "doc": "Asks for one batch of IDs. What a record header says already may be left null here; what is said twice must agree.",
  "fields": [
    {
      "name": "count",
      "type": "long",
      "doc": "How many IDs: 1 up to the layout's largest batch. A long, so that a number far too large is understood and refused as a count."
    },
    {
      "name": "correlation_id",
      "type": ["null", "bytes"],
      "default": null,
      "doc": "1 to 256 opaque bytes that name this request. A request repeated under the same bytes gets the same batch."
    },
    {
      "name": "reply_topic",
      "type": ["null", "string"],
      "default": null,
      "doc": "The Kafka topic that the reply goes to."
    },
    {
      "name": "expires_at",
      "type": ["null", { "type": "long", "logicalType": "timestamp-millis" }],
      "default": null,
      "doc": "After this moment the requester no longer wants new IDs. A request that was answered before still gets its batch."
    },
    {
      "name": "encoding",
      "type": [
        "null",
        {
          "type": "enum",
          "name": "Encoding",
          "symbols": ["RANGES", "IDS"],
          "doc": "RANGES: first and count of each run. IDS: every single ID."
        }
      ],
      "default": null,
      "doc": "How the reply lists the IDs; null means RANGES."
    }
  ]
}
`,
} as const;

/** The schemas of the ledger. They are apart, since the client bundles none of them. */
export const LEDGER_SCHEMAS = {
  'ledger-entry': `{
  "type": "record",
  "name": "LedgerEntry",
  "namespace": "idalloc.ledger",
  "doc": "One record of the ledger. The first batch for a key, in log order, decides what the key's request gets.",
  "fields": [
    {
      "name": "end",
      "type": "long",
      "doc": "Ledger offset at which the writer's index ended when it looked the request up: no entry below it had this key."
    },
    {
      "name": "through",
      "type": "long",
      "doc": "Highest request offset that the writer's index held at that moment; -1 when it held none."
    },
    {
      "name": "batch",
      "doc": "The decision. Null in a marker, which only keeps the ledger from running empty.",
      "default": null,
      "type": [
        "null",
        {
          "type": "record",
          "name": "LedgerBatch",
          "doc": "What was allocated for one request, and all that its reply shows.",
          "fields": [
            {
              "name": "request_hash",
              "type": { "type": "fixed", "name": "RequestHash", "size": 16 },
              "doc": "First half of the SHA-256 of the request's count and reply topic; another request under the same key has another hash."
            },
            { "name": "count", "type": "int", "doc": "How many IDs the request asked for; the sum over ranges." },
            { "name": "reply_topic", "type": "string", "doc": "The topic that the reply goes to." },
            { "name": "request_offset", "type": "long", "doc": "The request's offset in its partition, which has this entry's partition number." },
            {
              "name": "framing",
              "type": {
                "type": "enum",
                "name": "Framing",
                "symbols": ["SINGLE_OBJECT", "CONFLUENT"],
                "doc": "How schema and body are joined to a record value."
              },
              "doc": "The reply's framing; it mirrors the request's."
            },
            {
              "name": "schema_fingerprint",
              "type": { "type": "fixed", "name": "SchemaFingerprint", "size": 8 },
              "doc": "CRC-64-AVRO, little endian, of the schema that the reply is encoded in, so that it stays the same bytes across releases."
            },
            {
              "name": "ranges",
              "doc": "The IDs as runs in rising order; never empty.",
              "type": {
                "type": "array",
                "items": {
                  "type": "record",
                  "name": "LedgerRange",
                  "doc": "The IDs first, first + step, ... first + (count - 1) * step.",
                  "fields": [
                    { "name": "first", "type": "long", "doc": "The lowest ID of the run, a full 64-bit integer." },
                    { "name": "count", "type": "int", "doc": "How many IDs the run has; at least 1." }
                  ]
                }
              }
            },
            { "name": "step", "type": "long", "doc": "Distance between neighbouring IDs of a run." },
            { "name": "datacenter_id", "type": "int", "doc": "The datacenter field of every ID here." },
            { "name": "worker_id", "type": "int", "doc": "The leased worker field of every ID here." },
            { "name": "fence", "type": "long", "doc": "Create revision of the allocating worker's owner key in etcd." },
            {
              "name": "epoch",
              "type": { "type": "long", "logicalType": "timestamp-millis" },
              "doc": "The moment from which the layout counts its ticks."
            },
            {
              "name": "layout_fingerprint",
              "type": { "type": "fixed", "name": "LayoutFingerprint", "size": 8 },
              "doc": "Identifies the ID layout, most significant byte first."
            },
            {
              "name": "generated_at",
              "type": { "type": "long", "logicalType": "timestamp-millis" },
              "doc": "The allocating worker's wall clock at the allocation."
            }
          ]
        }
      ]
    }
  ]
}
`,
  'ledger-sequence': `{
  "type": "record",
  "name": "SequenceEntry",
  "namespace": "idalloc.ledger",
  "doc": "One record of a sequence in the ledger. It counts if and only if it lies at the offset for which it was written; otherwise it is void.",
  "fields": [
    {
      "name": "end",
      "type": "long",
      "doc": "Ledger offset at which the writer's index ended when it looked its requests up; 0 from an operator, who knows nothing of requests."
    },
    {
      "name": "through",
      "type": "long",
      "doc": "Highest request offset that the writer's index held at that moment; -1 when it held none, and from an operator."
    },
    {
      "name": "at",
      "type": "long",
      "doc": "The ledger offset for which the record was written. -1 in a renewal, which repeats numbers that were decided before."
    },
    {
      "name": "content",
      "doc": "Numbers for one request, or what the sequence is.",
      "type": [
        {
          "type": "record",
          "name": "SequenceNumbers",
          "doc": "The numbers of one request, and all that its reply shows. The key has the sequence and the request.",
          "fields": [
            {
              "name": "request_hash",
              "type": { "type": "fixed", "name": "RequestHash", "size": 16 },
              "doc": "First half of the SHA-256 of the request's count and reply topic; another request under the same key has another hash."
            },
            { "name": "count", "type": "int", "doc": "How many numbers the request asked for; at least 1." },
            { "name": "reply_topic", "type": "string", "doc": "The topic that the reply goes to." },
            { "name": "request_offset", "type": "long", "doc": "The request's offset in its partition, which has this entry's partition number." },
            {
              "name": "framing",
              "type": {
                "type": "enum",
                "name": "Framing",
                "symbols": ["SINGLE_OBJECT", "CONFLUENT"],
                "doc": "How schema and body are joined to a record value."
              },
              "doc": "The reply's framing; it mirrors the request's."
            },
            {
              "name": "schema_fingerprint",
              "type": { "type": "fixed", "name": "SchemaFingerprint", "size": 8 },
              "doc": "CRC-64-AVRO, little endian, of the schema that the reply is encoded in."
            },
            { "name": "first", "type": "long", "doc": "The numbers are first, first + step, ... first + (count - 1) * step; the last one is at most 2^53 - 1." },
            { "name": "step", "type": "long", "doc": "Distance between neighbouring numbers; at least 1." },
            { "name": "format", "type": "string", "doc": "How readers write a number, such as INV-{number:6}; empty for plain digits." }
          ]
        },
        {
          "type": "record",
          "name": "SequenceStatement",
          "doc": "What the sequence is from here on, and its next number. The key has its name.",
          "fields": [
            { "name": "next", "type": "long", "doc": "The number that the next request gets first." },
            { "name": "step", "type": "long", "doc": "Distance between neighbouring numbers; at least 1." },
            { "name": "max", "type": "long", "doc": "The largest number that may be given out; max + step is at most 2^53 - 1." },
            { "name": "format", "type": "string", "doc": "How readers write a number; empty for plain digits." },
            { "name": "closed", "type": "boolean", "doc": "Whether it gives out no more numbers." }
          ]
        }
      ]
    }
  ]
}
`,
} as const;
