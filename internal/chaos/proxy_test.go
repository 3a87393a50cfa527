package chaos_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/chaos"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// server answers every connection with handle until the test's end, and returns its address.
func server(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				handle(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

func echo(conn net.Conn) { _, _ = io.Copy(conn, conn) }

// proxy is closed before its target is.
func proxy(t *testing.T, target string) *chaos.Proxy {
	t.Helper()
	p, err := chaos.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != text {
		t.Fatalf("received %q (%v), want %q", buf, err, text)
	}
}

// silent fails the test when something comes within a moment.
func silent(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	n, err := conn.Read(make([]byte, 1))
	if n != 0 || !isTimeout(err) {
		t.Fatalf("read %d bytes (%v), want silence", n, err)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func wantReset(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read error %v, want a reset", err)
	}
}

func TestEverythingPassesBothWaysToTheEnd(t *testing.T) {
	t.Parallel()
	p := proxy(t, server(t, echo))
	conn := dial(t, p.Addr())
	sent := make([]byte, 4<<20)
	_, _ = rand.Read(sent)
	var writer sync.WaitGroup
	writer.Go(func() {
		if _, err := conn.Write(sent); err != nil {
			t.Error(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil { // the echo's answer still comes
			t.Error(err)
		}
	})
	defer writer.Wait()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d came back (%v)", len(got), len(sent), err)
	}
	testbed.Eventually(t, patience, "the end of the connection", func() bool { return p.Connections() == 0 })
}

func TestCutResetsAndRefusesUntilRestore(t *testing.T) {
	t.Parallel()
	p := proxy(t, server(t, echo))
	conn := dial(t, p.Addr())
	send(t, conn, "a")
	receive(t, conn, "a")
	p.Cut()
	wantReset(t, conn)
	if conn, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			conn.Close()
		}
		t.Errorf("error = %v", err)
	}
	addr := p.Addr()
	for range 2 { // the second finds nothing to do
		if err := p.Restore(); err != nil {
			t.Fatal(err)
		}
	}
	again := dial(t, addr)
	send(t, again, "b")
	receive(t, again, "b")
}

func TestCloseAllResetsAndGoesOn(t *testing.T) {
	t.Parallel()
	p := proxy(t, server(t, echo))
	conn := dial(t, p.Addr())
	send(t, conn, "a")
	receive(t, conn, "a")
	p.CloseAll()
	wantReset(t, conn)
	again := dial(t, p.Addr())
	send(t, again, "b")
	receive(t, again, "b")
}

func TestStallHoldsBackOneDirectionOnly(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		direction chaos.Direction
		arrives   bool
	}{{"to the server", chaos.ToServer, false}, {"to the client", chaos.ToClient, true}, {"both", chaos.Both, false}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan struct{}, 10)
			p := proxy(t, server(t, func(conn net.Conn) {
				buf := make([]byte, 1)
				for {
					if _, err := conn.Read(buf); err != nil {
						return
					}
					arrived <- struct{}{}
					_, _ = conn.Write(buf)
				}
			}))
			p.Stall(test.direction)
			conn := dial(t, p.Addr())
			send(t, conn, "a")
			silent(t, conn)
			select {
			case <-arrived:
				if !test.arrives {
					t.Error("it arrived at the server")
				}
			default:
				if test.arrives {
					t.Error("it didn't arrive at the server")
				}
			}
			p.Resume()
			receive(t, conn, "a") // nothing is lost
		})
	}
}

func TestAStalledConnectionCanBeCutAndClosed(t *testing.T) {
	t.Parallel()
	p := proxy(t, server(t, echo))
	p.Stall(chaos.Both)
	conn := dial(t, p.Addr())
	send(t, conn, "a")
	testbed.Eventually(t, patience, "the connection", func() bool { return p.Connections() == 1 })
	p.CloseAll()
	wantReset(t, conn)
	send(t, dial(t, p.Addr()), "b")
}

func TestDelayPostponesWithoutSlowing(t *testing.T) {
	t.Parallel()
	p := proxy(t, server(t, echo))
	conn := dial(t, p.Addr())
	p.Delay(time.Hour)
	send(t, conn, "a")
	silent(t, conn)
	p.Delay(0) // what was postponed is due now
	receive(t, conn, "a")

	const delay = 50 * time.Millisecond
	p.Delay(delay)
	began := time.Now()
	for range 20 {
		send(t, conn, "b")
	}
	receive(t, conn, "bbbbbbbbbbbbbbbbbbbb")
	if took := time.Since(began); took < 2*delay {
		t.Errorf("both ways took %v, want at least %v", took, 2*delay)
	}
}

func TestLimitHoldsBackWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	p := proxy(t, server(t, echo))
	conn := dial(t, p.Addr())
	p.Limit(1) // a byte a second: two echoed bytes take a second at least
	began := time.Now()
	send(t, conn, "ab")
	receive(t, conn, "ab")
	if took := time.Since(began); took < time.Second {
		t.Errorf("two bytes took %v", took)
	}
	send(t, conn, "0123456789012345678901234567890123456789")
	p.Limit(0)
	receive(t, conn, "0123456789012345678901234567890123456789")
}

func TestConfinedDelayLeavesTheOtherDirectionAlone(t *testing.T) {
	t.Parallel()
	p := proxy(t, server(t, echo))
	conn := dial(t, p.Addr())
	p.Confine(chaos.ToClient)
	p.Delay(time.Hour)
	send(t, conn, "a")
	silent(t, conn)
	p.Confine(chaos.ToServer) // what is held back goes back to the client alone
	receive(t, conn, "a")
	p.Confine(chaos.Both)
	send(t, conn, "b")
	silent(t, conn)
	p.Delay(0)
	receive(t, conn, "b")
}

func TestAMissingTargetResetsTheClientAndMayComeLater(t *testing.T) {
	t.Parallel()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	p := proxy(t, nobody.Addr().String())
	// The reset may come so early that the client is told by its dial.
	if conn, err := net.Dial("tcp", p.Addr()); err == nil {
		wantReset(t, conn)
		conn.Close()
	}
	p.SetTarget(server(t, echo))
	conn := dial(t, p.Addr())
	send(t, conn, "a")
	receive(t, conn, "a")
	conn.Close()
	// This target is closed before the proxy: its connections have to be over.
	testbed.Eventually(t, patience, "the end of the connection", func() bool { return p.Connections() == 0 })
}

func TestAResetOfTheServerReachesTheClient(t *testing.T) {
	t.Parallel()
	p := proxy(t, server(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		_ = conn.(*net.TCPConn).SetLinger(0)
	}))
	conn := dial(t, p.Addr())
	send(t, conn, "a")
	wantReset(t, conn)
}

func TestAClosedProxyIsGone(t *testing.T) {
	t.Parallel()
	p := proxy(t, server(t, echo))
	conn := dial(t, p.Addr())
	send(t, conn, "a")
	receive(t, conn, "a")
	for range 2 { // the second finds nothing to do
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wantReset(t, conn)
	if p.Connections() != 0 {
		t.Error("the connection is still there")
	}
	if err := p.Restore(); err == nil {
		t.Error("a closed proxy was restored")
	}
}
