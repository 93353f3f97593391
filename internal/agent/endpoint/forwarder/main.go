package forwarder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/apiserver"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forward"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
)

// readyFD is the file descriptor of the pipe on which the process says that it is ready,
// or why not.
const readyFD = 3

// ready is what it says.
const ready = "ready"

// dialTimeout is longer than the forwarder's own.
const dialTimeout = 10 * time.Second

// runningProgram is this program, also after its file was replaced.
const runningProgram = "/proc/self/exe"

// Main is the process: it forwards what the document in the state directory dir says, and
// returns the exit status. Only a Manager may start it. localAddresses returns the host's
// addresses, the preferred one first.
func Main(dir string, localAddresses func() []string) int {
	// The agent that has started it, and its terminal or journal, may go away.
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	pipe, err := takePipe()
	if err != nil {
		log.Error("Not started", "error", err)
		return 1
	}
	p, err := start(ctx, dir, localAddresses, log)
	text := ready
	if err != nil {
		text = err.Error()
	}
	_, _ = pipe.WriteString(text)
	_ = pipe.Close()
	if err != nil {
		return 1
	}
	p.run(ctx)
	return 0
}

// takePipe returns the pipe that the Manager passed.
func takePipe() (*os.File, error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(readyFD, &stat); err != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		return nil, errors.New("this command is part of the agent and not for use by hand")
	}
	syscall.CloseOnExec(readyFD)
	return os.NewFile(readyFD, "ready"), nil
}

// start makes the process accept connections.
func start(ctx context.Context, dir string, localAddresses func() []string, log *slog.Logger) (*process, error) {
	config, err := load(dir)
	if err != nil {
		return nil, err
	}
	program, err := programOf(runningProgram)
	if err != nil {
		return nil, err
	}
	listening, err := acquire(ctx, dir, config)
	if err != nil {
		return nil, err
	}
	clock := retry.System{}
	prober := probe.New(probe.Options{Root: "/", LocalAddresses: localAddresses, Clock: clock})
	p := &process{dir: dir, program: program, sockets: listening, clock: clock, log: log, accepted: make(chan struct{}), ended: make(chan struct{})}
	p.forwarder = forward.New(forward.Options{
		Own:   func() string { return apiserver.Own("/", localAddresses()) },
		Check: func(ctx context.Context, backend string) error { return prober.Ready(ctx, backend, p.current().Host) },
		Dial:  tcp.SiteDialer(dialTimeout).DialContext, Confirm: isAgent, Clock: clock, Log: log,
	})
	p.use(config)
	tookOver := listening.former() != nil
	if err := p.begin(); err != nil { //nolint:contextcheck // connections outlive the start
		p.forwarder.Close()
		listening.close()
		return nil, err
	}
	log.Info("Forwarding the control plane's endpoint", "address", config.Address(), "host", config.Host, "tookOver", tookOver)
	return p, nil
}

// holderOf describes who listens at a port.
func holderOf(port int32) string {
	found, err := findListener("/", port)
	if err != nil || found.pid == 0 {
		return "another program"
	}
	return fmt.Sprintf("%s (process %s)", found.name, strconv.Itoa(found.pid))
}
