package table

// Decoder makes events of rows that have one row description. It is not safe for concurrent use.
type Decoder struct{}

// Decoder prepares the decoding of rows with these columns, in this order; names are as in the catalog. It fails when a
// column is not among them on which the event depends.
func (o *Outbox) Decoder(cols []WireColumn) (*Decoder, error) { return nil, nil }

// Decode makes an event of a row. The fields are only borrowed; the event has copies. An error means that the data
// isn't what Postgres would send.
func (d *Decoder) Decode(fields []Field) (Row, error) { return Row{}, nil }
