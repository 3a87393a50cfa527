package history

import (
	"fmt"
	"hash/crc32"
	"time"
)

// story tells a history of a relay that keeps its promises; a test breaks one of them.
type story struct {
	*History
	now     time.Time
	seqs    map[string]int64
	offsets map[string]int64
}

// The bounds of the stories.
const (
	storyRetention = time.Minute
	storyInFlight  = 3
)

var storyBegan = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func newStory() *story {
	s := &story{
		History: &History{Rules: Rules{
			Retention: storyRetention, InFlight: storyInFlight,
			Recreated: map[string]time.Time{}, Refusing: map[string]bool{},
		}},
		now: storyBegan, seqs: map[string]int64{}, offsets: map[string]int64{},
	}
	s.window("no fault", 0)
	return s
}

// window begins a window, a second later.
func (s *story) window(kind string, repeats int) {
	s.tick(time.Second)
	s.Windows = append(s.Windows, Window{Kind: kind, Began: s.now, Repeats: repeats})
}

func (s *story) tick(d time.Duration) { s.now = s.now.Add(d) }

// commit has a writer commit an event for a key; its row is PENDING. It returns the event's UID.
func (s *story) commit(topic, key string) int64 {
	s.tick(10 * time.Millisecond)
	uid := int64(len(s.Events) + 1)
	e := Event{
		UID: uid, Table: "outbox", Topic: topic, Key: key, Sum: crc32.ChecksumIEEE(fmt.Append(nil, uid)), Committed: true, At: s.now,
	}
	if key != "" {
		s.seqs[key]++
		e.Seq = s.seqs[key]
	}
	s.Events = append(s.Events, e)
	s.Rows = append(s.Rows, Row{UID: uid, ID: uid, MessageID: fmt.Sprintf("m%d", uid), Status: Pending})
	return uid
}

// rollBack has a writer insert an event and roll it back.
func (s *story) rollBack(topic, key string) int64 {
	uid := s.commit(topic, key)
	s.event(uid).Committed = false
	s.Rows = s.Rows[:len(s.Rows)-1]
	return uid
}

func (s *story) event(uid int64) *Event { return &s.Events[uid-1] }

// row is nil when the row was deleted.
func (s *story) row(uid int64) *Row {
	for i := range s.Rows {
		if s.Rows[i].UID == uid {
			return &s.Rows[i]
		}
	}
	return nil
}

// publish has the broker append an event's record, in the partition of its key.
func (s *story) publish(uids ...int64) {
	for _, uid := range uids {
		s.tick(2 * time.Millisecond)
		e := s.event(uid)
		partition := int32(crc32.ChecksumIEEE([]byte(e.Key)) % 2)
		at := fmt.Sprint(e.Topic, partition)
		s.Records = append(s.Records, Record{
			UID: uid, Topic: e.Topic, Partition: partition, Offset: s.offsets[at], At: s.now, Key: e.Key,
			MessageID: fmt.Sprintf("m%d", uid), Sum: e.Sum,
		})
		s.offsets[at]++
	}
}

// become has an event's row change its state, and the diary note it.
func (s *story) become(uid int64, state string) {
	s.tick(2 * time.Millisecond)
	row := s.row(uid)
	c := Change{UID: uid, From: row.Status, To: state, At: s.now}
	if state == Published {
		c.PublishedAt = s.now
	}
	s.Changes = append(s.Changes, c)
	row.Status = state
}

// mark has rows become PUBLISHED.
func (s *story) mark(uids ...int64) {
	for _, uid := range uids {
		s.become(uid, Published)
	}
}

// deliver is the whole way of an event.
func (s *story) deliver(topic, key string) int64 {
	uid := s.commit(topic, key)
	s.publish(uid)
	s.mark(uid)
	return uid
}

// fail counts a failed attempt.
func (s *story) fail(uid int64, attempt int, text string) {
	s.tick(2 * time.Millisecond)
	s.Changes = append(s.Changes, Change{UID: uid, From: Pending, To: Pending, Attempts: attempt, Attempted: true, Error: text, At: s.now})
}

// remove deletes a row, and has the diary note it.
func (s *story) remove(uid int64) {
	s.tick(2 * time.Millisecond)
	for i := range s.Rows {
		if s.Rows[i].UID == uid {
			s.Changes = append(s.Changes, Change{UID: uid, From: s.Rows[i].Status, To: Gone, At: s.now})
			s.Rows = append(s.Rows[:i], s.Rows[i+1:]...)
			return
		}
	}
}

// record is the n-th record of an event.
func (s *story) record(uid int64, n int) *Record {
	for i := range s.Records {
		if s.Records[i].UID != uid {
			continue
		}
		if n == 0 {
			return &s.Records[i]
		}
		n--
	}
	return nil
}

// unpublish takes all records of an event away.
func (s *story) unpublish(uid int64) {
	kept := s.Records[:0]
	for _, r := range s.Records {
		if r.UID != uid {
			kept = append(kept, r)
		}
	}
	s.Records = kept
}
