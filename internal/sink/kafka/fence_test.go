package kafka

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// behindFence is a connection behind a fence, and its other end.
func behindFence(t *testing.T) (*fence, net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := newFence(time.Second)
	c, err := f.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); other.Close(); f.sever(errFenced) })
	return f, c, other
}

func TestAWriteThatFollowsAnErrorIsNotLetThrough(t *testing.T) {
	for range 200 {
		f, c, _ := behindFence(t)
		f.guard()
		errs := make(chan error)
		go func() { // as producer.run
			defer close(f.open)
			for {
				select {
				case err := <-errs:
					if err == nil {
						return
					}
					time.Sleep(time.Microsecond) // the error is being looked at
					f.close(err)
				case <-f.pass:
				}
			}
		}()
		errs <- errors.New("the batch failed") // as sarama: hands out the error, and goes on at once
		if _, err := c.Write([]byte("the next batch")); !errors.Is(err, errFenced) {
			t.Fatalf("the next batch was written: %v", err)
		}
		errs <- nil
		<-f.open
	}
}

func TestBehindAShutFenceAnswersAreReadAndNothingIsDialed(t *testing.T) {
	f, c, other := behindFence(t)
	if !f.close(errors.New("first")) || f.close(errors.New("second")) || f.reason().Error() != "first" {
		t.Errorf("the cause is %v", f.reason())
	}
	if _, err := other.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 6)
	if n, err := c.Read(b); string(b[:n]) != "answer" {
		t.Errorf("read %q, %v", b[:n], err)
	}
	if _, err := f.Dial("tcp", c.RemoteAddr().String()); !errors.Is(err, errFenced) {
		t.Errorf("Dial = %v", err)
	}
	var netErr net.Error
	if _, err := c.Write(b); !errors.As(err, &netErr) || netErr.Timeout() {
		t.Errorf("Write = %v: sarama wouldn't see the end of the connection in it", err)
	}
}

func TestASeveredConnectionEndsItsReads(t *testing.T) {
	f, c, _ := behindFence(t)
	var severed atomic.Bool
	time.AfterFunc(time.Millisecond, func() { severed.Store(true); f.sever(errFenced) })
	if _, err := c.Read(make([]byte, 1)); err == nil || !severed.Load() {
		t.Errorf("Read = %v before the fence was severed", err)
	}
}
