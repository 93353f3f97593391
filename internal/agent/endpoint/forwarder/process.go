package forwarder

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forward"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// reloadInterval is how often the document is read without a request. A process that has
// handed over gets none.
const reloadInterval = 10 * time.Second

// process is a forwarder with its sockets.
type process struct {
	dir, program string
	sockets      *sockets
	forwarder    *forward.Forwarder
	clock        retry.Clock
	log          *slog.Logger
	// accepted is closed when no more connections will be accepted.
	accepted chan struct{}
	// ended is closed when the process has to end.
	ended chan struct{}
	end   sync.Once

	running sync.WaitGroup

	mu     sync.Mutex
	config Config
	// watchers are the connections of verbWatch. isHandedOver forbids more.
	watchers     []net.Conn
	isHandedOver bool
}

func (p *process) stop() { p.end.Do(func() { close(p.ended) }) }

func (p *process) current() Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config
}

func (p *process) use(config Config) {
	p.mu.Lock()
	p.config = config
	p.mu.Unlock()
	p.forwarder.SetBackends(config.Backends)
}

// begin accepts connections, and then lets the predecessor stop.
func (p *process) begin() error {
	p.running.Go(func() {
		defer close(p.accepted)
		p.forwarder.Accept(p.sockets.tcp)
	})
	former := p.sockets.former()
	if former == nil {
		return nil
	}
	if err := send(former, verbTaken); err != nil {
		return err
	}
	p.running.Go(p.sockets.awaitPredecessors)
	return nil
}

// run serves until the process has to end or ctx does. Nothing of it is left then.
func (p *process) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	p.running.Go(func() { p.forwarder.Watch(ctx) })
	p.running.Go(func() { p.reloadUntil(ctx) })
	p.running.Go(p.serve)
	select {
	case <-ctx.Done():
	case <-p.ended:
	}
	p.stop()
	cancel()
	p.sockets.stopListening()
	p.closeWatchers()
	p.forwarder.Close()
	p.sockets.close()
	p.running.Wait()
	p.log.Info("No longer forwarding the control plane's endpoint")
}

// reloadUntil reads the document at intervals.
func (p *process) reloadUntil(ctx context.Context) {
	for p.clock.Wait(ctx, reloadInterval) == nil {
		if err := p.reload(); err != nil {
			p.log.Warn("Going on with the former backends", "error", err)
		}
	}
}

// reload reads the document. Without it, the process ends.
func (p *process) reload() error {
	config, err := load(p.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.stop()
		return nil
	case err != nil:
		return err
	case config.Port != p.current().Port:
		return errors.New("the endpoint has another port, for which another process is needed")
	}
	p.use(config)
	return nil
}

// serve answers requests until the control socket is closed.
func (p *process) serve() {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		conn, err := p.sockets.control.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if p.clock.Wait(context.Background(), time.Second) != nil {
				return
			}
			continue
		}
		connections.Go(func() {
			defer func() { _ = conn.Close() }()
			p.answer(conn)
		})
	}
}

// answer serves one connection.
func (p *process) answer(conn *net.UnixConn) {
	if conn.SetDeadline(time.Now().Add(controlTimeout)) != nil {
		return
	}
	from := bufio.NewReaderSize(conn, 64)
	requested, err := receive(from)
	if err != nil {
		return
	}
	switch requested {
	case verbReload:
		p.reply(conn, p.reload())
	case verbWatch:
		if p.watch(conn) {
			p.reply(conn, nil)
			_ = conn.SetDeadline(time.Time{})
			_, _ = io.Copy(io.Discard, from)
		}
	case verbStop:
		p.reply(conn, nil)
		p.stop()
	case verbHandOver:
		p.handOver(conn, from)
	default:
		p.reply(conn, errors.New("unknown request"))
	}
}

func (p *process) status() status {
	return status{Program: p.program, Config: p.current(), Connections: p.forwarder.Connections()}
}

func (p *process) reply(conn net.Conn, err error) {
	answer := p.status()
	if err != nil {
		answer.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(answer)
}

// handOver hands over to a successor, and ends the process when all connections have
// ended, or the successor has.
func (p *process) handOver(conn *net.UnixConn, from *bufio.Reader) {
	if err := p.sockets.handOver(conn, p.status()); err != nil {
		p.log.Warn("Could not hand over", "error", err)
		return
	}
	if taken, err := receive(from); err != nil || taken != verbTaken {
		p.log.Warn("The newer forwarder did not start")
		return
	}
	p.log.Info("A newer forwarder has taken over", "connections", p.forwarder.Connections())
	p.sockets.stopListening()
	p.closeWatchers()
	p.running.Go(func() {
		// One that was accepted last is not forwarded yet.
		<-p.accepted
		p.forwarder.Wait()
		p.stop()
	})
	stop := context.AfterFunc(p.endContext(), func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Time{})
	_, _ = io.Copy(io.Discard, from)
	p.stop()
}

// endContext returns a context that ends with the process.
func (p *process) endContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	p.running.Go(func() {
		<-p.ended
		cancel()
	})
	return ctx
}

// watch registers a connection that is closed when the process no longer accepts
// connections.
func (p *process) watch(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isHandedOver {
		return false
	}
	p.watchers = append(p.watchers, conn)
	return true
}

func (p *process) closeWatchers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isHandedOver = true
	for _, conn := range p.watchers {
		_ = conn.Close()
	}
	p.watchers = nil
}
