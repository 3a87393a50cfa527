package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/cdc-relay/cdc-relay/internal/chaos"
	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/pgtest"
)

// Bed is the servers that runs share, one run at a time.
type Bed struct {
	postgres  *pgtest.Cluster
	kafka     *kafkatest.Cluster
	proxies   []*chaos.Proxy // before each broker
	databases int

	pg     sync.Mutex // held by who stops or starts Postgres
	broker sync.Mutex // held by who stops or starts a broker
}

// StartBed starts Postgres and brokers. Close ends them.
func StartBed(ctx context.Context, brokers int, out io.Writer) (*Bed, error) {
	b := &Bed{}
	var pgErr, kafkaErr error
	var both sync.WaitGroup
	both.Go(func() {
		b.postgres, pgErr = pgtest.StartCluster(ctx, pgtest.Options{Install: true, Out: out, Settings: map[string]string{
			"shared_buffers": "64MB", "max_wal_size": "256MB", "autovacuum_naptime": "5s",
		}})
	})
	both.Go(func() {
		b.kafka, kafkaErr = kafkatest.StartCluster(ctx, kafkatest.Options{
			Nodes: brokers, Install: true, Out: out, Via: b.before,
			Properties: map[string]string{"min.insync.replicas": fmt.Sprint(min(2, brokers)), "leader.imbalance.check.interval.seconds": "10"},
		})
	})
	both.Wait()
	if err := errors.Join(pgErr, kafkaErr); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// before puts a proxy before a broker.
func (b *Bed) before(target string) (string, error) {
	p, err := chaos.NewProxy(target)
	if err != nil {
		return "", err
	}
	b.proxies = append(b.proxies, p)
	return p.Addr(), nil
}

// Close ends the servers. Further calls do nothing.
func (b *Bed) Close() (err error) {
	if b.kafka != nil {
		err = b.kafka.Close()
	}
	if b.postgres != nil {
		err = errors.Join(err, b.postgres.Close())
	}
	for _, p := range b.proxies {
		err = errors.Join(err, p.Close())
	}
	return err
}

// restartPostgres stops the server in one of pg_ctl's ways, does something meanwhile, and starts it.
func (b *Bed) restartPostgres(ctx context.Context, mode string, meanwhile func()) error {
	b.pg.Lock()
	defer b.pg.Unlock()
	if err := b.postgres.Stop(mode); err != nil {
		return err
	}
	meanwhile()
	return b.postgres.Start(context.WithoutCancel(ctx))
}

// restartBroker stops a broker in order or at once, does something meanwhile, and starts it.
func (b *Bed) restartBroker(ctx context.Context, node int, stop func(int) error, meanwhile func()) error {
	b.broker.Lock()
	defer b.broker.Unlock()
	if err := stop(node); err != nil {
		return err
	}
	meanwhile()
	return b.kafka.Start(context.WithoutCancel(ctx), node)
}

// mend ends whatever a fault may have left behind.
func (b *Bed) mend(ctx context.Context) error {
	b.pg.Lock()
	err := b.postgres.Start(ctx)
	b.pg.Unlock()
	b.broker.Lock()
	defer b.broker.Unlock()
	for _, p := range b.proxies {
		err = errors.Join(err, heal(p))
	}
	for n := range b.kafka.Nodes() {
		if pid := b.kafka.Pid(n); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may be gone
		}
	}
	return errors.Join(err, b.startAll(ctx))
}

// startAll starts the brokers that don't run, all at once, since one alone may wait for the others.
func (b *Bed) startAll(ctx context.Context) error {
	errs := make([]error, b.kafka.Nodes())
	var all sync.WaitGroup
	for n := range errs {
		all.Go(func() { errs[n] = b.kafka.Start(ctx, n) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// heal ends all faults of a proxy.
func heal(p *chaos.Proxy) error {
	p.Resume()
	p.Delay(0)
	p.Limit(0)
	p.Confine(chaos.Both)
	return p.Restore()
}

// proxied are the brokers' addresses through the proxies.
func (b *Bed) proxied() []string { return b.kafka.BrokersOn(kafkatest.Proxied) }
