package replication

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/table"
)

// decoder turns pgoutput's messages into events. It belongs to one connection: what relations mean is sent anew on each.
type decoder struct {
	outboxes  map[uint32]*table.Outbox
	relations map[uint32]*table.Decoder // of outboxes whose Relation message has come
	columns   map[uint32]int
	offer     func(*event.Event)

	inside bool // between Begin and Commit
	tx     begin
	fields []table.Field // reused
}

func newDecoder(outboxes []*table.Outbox, offer func(*event.Event)) *decoder {
	d := &decoder{
		outboxes: map[uint32]*table.Outbox{}, relations: map[uint32]*table.Decoder{}, columns: map[uint32]int{}, offer: offer,
	}
	for _, o := range outboxes {
		d.outboxes[o.OID] = o
	}
	return d
}

// message takes one message, which is only borrowed. sent is the server's time of sending, received the relay's of
// receiving. When the message ends a transaction, end is the position behind it, and otherwise zero.
func (d *decoder) message(m []byte, sent, received time.Time) (end pglogrepl.LSN, err error) {
	if len(m) == 0 {
		return 0, fmt.Errorf("%w: it is empty", errMalformed)
	}
	r := reader{b: m[1:]}
	switch m[0] {
	case kindBegin:
		tx := r.begin()
		if err := r.end("Begin"); err != nil {
			return 0, err
		}
		if d.inside {
			return 0, fmt.Errorf("%w: Begin inside a transaction", errMalformed)
		}
		d.inside, d.tx = true, tx
		return 0, nil
	case kindCommit:
		end := r.commit()
		if err := r.end("Commit"); err != nil {
			return 0, err
		}
		if !d.inside || end == 0 {
			return 0, fmt.Errorf("%w: Commit without a transaction or position", errMalformed)
		}
		d.inside = false
		return end, nil
	case kindRelation:
		return 0, d.relation(r)
	case kindInsert:
		return 0, d.insert(r, sent, received)
	case kindUpdate, kindDelete, kindTruncate, kindType, kindOrigin, kindMessage:
		// A publication that publishes more than inserts is tolerated. 'M' and 'Y' come outside of transactions too.
		return 0, nil
	default:
		return 0, fmt.Errorf("%w: kind 0x%02x is not of protocol version 1", errMalformed, m[0])
	}
}

// relation notes what the following inserts look like. It is sent again after every change of the table. Relations that
// aren't outboxes are sent too: other tables of the publication, and the partition a row went to.
func (d *decoder) relation(r reader) error {
	oid, columns := r.relation()
	if err := r.end("Relation"); err != nil {
		return err
	}
	o := d.outboxes[oid]
	if o == nil {
		return nil
	}
	dec, err := o.Decoder(columns)
	if err != nil {
		return because("columns", "", "the rows of table %s can't be read from the stream: %v", o, err)
	}
	d.relations[oid], d.columns[oid] = dec, len(columns)
	return nil
}

func (d *decoder) insert(r reader, sent, received time.Time) error {
	oid := r.uint32()
	if tag := r.uint8(); tag != 'N' && !r.bad {
		return fmt.Errorf("%w: no new tuple in Insert", errMalformed)
	}
	dec := d.relations[oid]
	if dec == nil && d.outboxes[oid] == nil && !r.bad {
		return nil // not one of ours
	}
	d.fields = r.tuple(d.fields[:0])
	if err := r.end("Insert"); err != nil {
		return err
	}
	switch {
	case !d.inside:
		return fmt.Errorf("%w: Insert outside of a transaction", errMalformed)
	case dec == nil:
		return fmt.Errorf("%w: Insert before its Relation", errMalformed)
	case len(d.fields) != d.columns[oid]:
		return fmt.Errorf("%w: %d values for %d columns", errMalformed, len(d.fields), d.columns[oid])
	}
	row, err := dec.Decode(d.fields)
	if err != nil {
		return because("row", "", "a row of table %s can't be read from the stream: %v", d.outboxes[oid], err)
	}
	if row.Pending {
		d.offer(d.complete(row, sent, received))
	}
	return nil
}

// complete fills in what the stream knows of the event.
func (d *decoder) complete(row table.Row, sent, received time.Time) *event.Event {
	e := row.Event
	e.Path = event.WAL
	e.Xid = d.tx.xid
	e.ReceivedAt = received
	e.Lag = max(sent.Sub(d.tx.commitTime), 0)
	if !row.NextAttemptAt.IsZero() {
		// By the database's clock, and only for a row that was delayed on purpose: the default is the transaction's start.
		e.DueIn = max(row.NextAttemptAt.Sub(sent), 0)
	}
	return e
}
