package redisstream

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// recorded are the arguments that go-redis makes of a.
func recorded(t *testing.T, a *redis.XAddArgs) []string {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	return words(client.Pipeline().XAdd(context.Background(), a).Args())
}

func words(args []any) []string {
	var all []string
	for _, a := range args {
		switch a := a.(type) {
		case *string:
			all = append(all, *a)
		case []byte:
			all = append(all, string(a))
		default:
			all = append(all, fmt.Sprint(a))
		}
	}
	return all
}

func TestXADDIsWrittenAsGoRedisWritesIt(t *testing.T) {
	e := &event.Event{MessageID: [16]byte{15: 1}, Topic: "orders", Key: "k", HasKey: true, Payload: []byte("p"), Type: "T"}
	values := []any{"id", "00000000-0000-0000-0000-000000000001", "key", "k", "type", "T", "payload", "p", "headers", "{}"}
	asked := func(idempotent bool) *server {
		return &server{asked: true, idempotent: idempotent, clock: time.UnixMilli(5_000_000), askedAt: time.Now().Add(time.Hour)}
	}
	for name, test := range map[string]struct {
		c    Config
		idmp bool
		want redis.XAddArgs
	}{
		"plain":                 {Config{}, false, redis.XAddArgs{}},
		"idempotent":            {Config{}, true, redis.XAddArgs{ProducerID: "cdc-relay", IdempotentID: "00000000-0000-0000-0000-000000000001"}},
		"trimmed":               {Config{MaxLen: 100}, false, redis.XAddArgs{MaxLen: 100, Approx: true}},
		"trimmed exactly":       {Config{MaxLen: 100, TrimExact: true}, false, redis.XAddArgs{MaxLen: 100}},
		"idempotent, trimmed":   {Config{MaxLen: 100}, true, redis.XAddArgs{MaxLen: 100, Approx: true, ProducerID: "cdc-relay", IdempotentID: "00000000-0000-0000-0000-000000000001"}},
		"of an age":             {Config{MaxAge: time.Second}, false, redis.XAddArgs{MinID: "1399000", Approx: true}},
		"of an age before 1970": {Config{MaxAge: 2 * time.Hour}, false, redis.XAddArgs{MinID: "0", Approx: true}},
	} {
		s := asked(test.idmp)
		s.askedAt = time.Now()
		if test.want.MinID == "1399000" {
			s.clock = time.UnixMilli(1_400_000)
		}
		f := test.c.form(s, s.isIdempotent())
		if test.want.MinID != "" {
			// The clock goes on while we look.
			if got := fmt.Sprint(f.limit); !strings.HasPrefix(got, test.want.MinID[:1]) || len(got) != len(test.want.MinID) {
				t.Errorf("%s: the oldest id is %s", name, got)
			}
			f.limit = test.want.MinID
		}
		test.want.Stream, test.want.Values = "orders", values
		entries := newEntries([]*event.Event{e})
		got := words(f.appendArgs(nil, &entries[0]))
		if want := recorded(t, &test.want); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, want)
		}
		if len(got) > maxArgs {
			t.Errorf("%s: %d arguments", name, len(got))
		}
	}
}

func TestTheClockThatIsUnknownTrimsNothing(t *testing.T) {
	c := Config{MaxAge: time.Hour}
	if f := c.form(&server{asked: true}, false); f.trim != "" {
		t.Errorf("%+v", f)
	}
}

func TestIdempotentXADDIsUsedWhereTheServerHasIt(t *testing.T) {
	for info, want := range map[string]bool{
		"# Server\r\nredis_version:8.6.0\r\nredis_mode:standalone\r\n": true,
		"redis_version:8.10.1\r\n":                                     true,
		"redis_version:9.0.0\r\n":                                      true,
		"redis_version:8.4.9\r\n":                                      false,
		"redis_version:7.0.15\r\n":                                     false,
		"redis_version:unstable\r\n":                                   false,
		"":                                                             false,
		"redis_version:9.0.0\r\nserver_name:valkey\r\nvalkey_version:9.0.0\r\n": false,
		"# Server\r\nnot_redis_version:8.6.0\r\n":                               false,
	} {
		if got := offersIDMP(info); got != want {
			t.Errorf("%q: %v", info, got)
		}
	}
}

func TestOnlyReplicasThatWereHeardOfAMomentAgoFollow(t *testing.T) {
	info := "role:master\r\nconnected_slaves:4\r\nslave0:ip=1,port=2,state=online,offset=3,lag=0\r\nslave1:ip=1,port=2,state=online,offset=3,lag=1\r\n" +
		"slave2:ip=1,port=2,state=online,offset=3,lag=2\r\nslave3:ip=1,port=2,state=wait_bgsave,offset=0,lag=0\r\n"
	if n := followers(info); n != 2 {
		t.Errorf("%d follow", n)
	}
	if n := followers("role:slave\r\n"); n != 0 {
		t.Errorf("%d follow", n)
	}
}

func TestTheSizeOfAnEntryIsThatOfItsFields(t *testing.T) {
	e := &event.Event{Key: "key", HasKey: true, Payload: []byte("payload"), Type: "type", Headers: []event.Header{{Name: "a", Value: "b"}}}
	entries := newEntries([]*event.Event{{}, e})
	total := 0
	f := form{}
	for _, w := range words(f.appendArgs(nil, &entries[1]))[3:] {
		total += len(w)
	}
	if got := entries[1].size(); got != total {
		t.Errorf("size %d, want %d", got, total)
	}
	if entries[0].headers != "{}" || entries[1].headers != `{"a":"b"}` {
		t.Errorf("headers %q and %q", entries[0].headers, entries[1].headers)
	}
}
