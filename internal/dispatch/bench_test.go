package dispatch

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// BenchmarkMachine takes events through stream, acknowledgement and mark.
func BenchmarkMachine(b *testing.B) {
	cfg := Config{}.withDefaults()
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			now := time.Unix(1_000_000, 0)
			m := newMachine(cfg.limits(), now)
			m.streamConnectingNow()
			m.streamStarted(1)
			m.now = now.Add(2 * time.Second)
			m.step()
			m.passBegun(nil)
			m.step()
			m.pageRead(event.Page{Last: true})
			m.step()
			if m.mode != Live {
				b.Fatalf("mode %v", m.mode)
			}
			keys := make([]string, 1000)
			for i := range keys {
				keys[i] = fmt.Sprint("key ", i)
			}
			events := make([]event.Event, batch)
			ok := make([]error, cfg.BatchRows)
			id := int64(0)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for b.Loop() {
				for i := range events {
					id++
					events[i] = event.Event{ID: event.IntID(0, id), Key: keys[id%1000], HasKey: true}
					m.streamEvent(&events[i])
				}
				for marked := 0; marked < batch; {
					fx := m.step()
					for _, e := range fx.mark {
						m.settledAs(event.Settled{ID: e.ID})
					}
					marked += len(fx.mark)
					for _, s := range fx.send {
						m.laneDone(s.lane, ok[:len(s.items)])
					}
				}
				m.step()
			}
			if m.rows != 0 || len(m.known) != 0 {
				b.Fatalf("%d rows, %d known", m.rows, len(m.known))
			}
			b.ReportMetric(float64(id)/b.Elapsed().Seconds(), "events/s")
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(id), "allocs/event")
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(id), "ns/event")
		})
	}
}

// BenchmarkMailbox passes messages from one goroutine to another.
func BenchmarkMailbox(b *testing.B) {
	box := newMailbox[streamMsg]()
	e := row(1, "a")
	done := make(chan int)
	n := b.N
	go func() {
		got := 0
		for got < n {
			<-box.signal
			got += len(box.take())
		}
		done <- got
	}()
	b.ReportAllocs()
	b.ResetTimer()
	for range n {
		box.put(streamMsg{kind: sEvent, event: e})
	}
	<-done
}
