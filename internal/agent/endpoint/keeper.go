package endpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/publish"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/reject"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/rewrite"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// commandTimeout bounds a program of the host.
const commandTimeout = 30 * time.Second

// Options are what a Keeper works with.
type Options struct {
	// Documents are the agent's own; the Keeper's is endpoint.json.
	Documents state.Files
	// Root stands for "/"; blank is this machine.
	Root string
	// System writes files; nil means durable.OS.
	System durable.System
	// Commands run systemctl, nft and ip; nil means host.Commands.
	Commands host.Commander
	// Interfaces lists all network interfaces, that of loopback included; nil means
	// those of this machine.
	Interfaces func() ([]host.Interface, error)
	Log        *slog.Logger
}

// Keeper keeps the endpoint of this host. Use New. It is safe for concurrent
// use; one call works at a time.
type Keeper struct {
	o  Options
	mu sync.Mutex
}

// New makes a Keeper. It does nothing yet.
func New(o Options) *Keeper {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.System == nil {
		o.System = durable.OS{}
	}
	if o.Commands == nil {
		o.Commands = host.Commands{}
	}
	if o.Interfaces == nil {
		o.Interfaces = allInterfaces
	}
	return &Keeper{o: o}
}

// record is what has to survive a restart of the agent.
type record struct {
	// Files are the paths that may have been written.
	Files []string `json:"files,omitempty"`
	// VIPs are addresses that kube-vip may have put on an interface.
	VIPs []string `json:"vips,omitempty"`
	// Rejects is the former endpoint that may be refused.
	Rejects string `json:"rejects,omitempty"`
	// RestartDue: kubelet.conf may be newer than the kubelet that runs.
	RestartDue bool `json:"restartDue,omitempty"`
}

func (k *Keeper) document() state.Document[record] {
	return state.Document[record]{Files: k.o.Documents, Name: "endpoint.json"}
}

// Prepare makes ready for a bootstrap: the files are there, and a VIP is
// remembered so that a reset can take it off. A file that is not desired any
// more goes; nil files leave all as they are. It may be repeated, and does
// nothing when there is nothing to do.
func (k *Keeper) Prepare(ctx context.Context, endpoint *protocol.Endpoint, files []protocol.File) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, err := k.document().Load()
	if err != nil {
		return err
	}
	return errors.Join(k.keepFiles(&at, files), k.keepVIP(ctx, &at, endpoint))
}

// Apply makes the host what its plan's Desired.Endpoint and Desired.Files say,
// and tells what is so afterwards; all but the probes, which are not its
// business. It is not to be called while a bootstrap or a reset runs, which
// write the same files.
//
// Without an endpoint, kubeconfigs stay as they are, and what was done beside
// is taken back; only with nil files, files and the VIP stay as well. A second
// call with the same arguments writes nothing. What
// fails is in the report's Message and in the error; all else is done
// nevertheless, and it is for the caller to call again.
func (k *Keeper) Apply(ctx context.Context, endpoint *protocol.Endpoint, files []protocol.File) (protocol.EndpointReport, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var report protocol.EndpointReport
	at, err := k.document().Load()
	if err != nil {
		return report, err
	}
	failures := []error{k.keepFiles(&at, files), k.keepVIP(ctx, &at, endpoint)}
	var rules rewrite.Rules
	if endpoint != nil {
		if rules, err = rewrite.New(*endpoint); err != nil {
			failures = append(failures, err)
			endpoint = nil
		}
	}
	report.Kubeconfigs, err = k.follow(ctx, &at, rules)
	failures = append(failures, err)
	if endpoint != nil && endpoint.Publish {
		if err := publish.Publish(ctx, k.o.Root, rules); err != nil {
			failures = append(failures, err)
		} else {
			report.Workload = rules.Endpoint()
		}
	}
	var former string
	if endpoint != nil {
		former = endpoint.Reject
	}
	if former != "" && rewrite.Normal(former, "") == rewrite.Normal(rules.Endpoint(), "") {
		failures = append(failures, fmt.Errorf("not refusing connections to %s, which is the endpoint", former))
		former = ""
	}
	report.Rejects, err = k.reject(ctx, &at, former)
	failures = append(failures, err)
	err = errors.Join(failures...)
	report.Message = message(err)
	return report, err
}

// Remove takes back what was done beside kubeconfigs: the files, the VIP, the
// refusal of a former endpoint. It is for a reset, and to be called when the
// node's containers have ended: a kube-vip that lives would put the address on
// again. It may be repeated.
func (k *Keeper) Remove(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, err := k.document().Load()
	if err != nil {
		return err
	}
	failures := []error{k.keepFiles(&at, []protocol.File{}), k.keepVIP(ctx, &at, nil)}
	if at.Rejects != "" || k.table().Exists(ctx) {
		failures = append(failures, k.table().Delete(ctx))
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	left, err := k.addresses(at.VIPs)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("the control plane's virtual address is still there: %s", left[0])
	}
	return k.o.Documents.Remove(k.document().Name)
}

// Leftovers names what Remove has not taken away, in the words of
// protocol.Cleanliness.
func (k *Keeper) Leftovers(ctx context.Context) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, err := k.document().Load()
	if err != nil {
		return nil, err
	}
	left, err := k.addresses(at.VIPs)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, one := range left {
		found = append(found, one.String())
	}
	for _, name := range at.Files {
		if k.o.System.Stat(k.path(name)) == nil {
			found = append(found, "file "+name)
		}
	}
	if k.table().Exists(ctx) {
		found = append(found, "packet filter table "+reject.Name)
	}
	slices.Sort(found)
	return found, nil
}

// reject has connections to a former endpoint refused, or that ended if former
// is blank. It returns what is refused.
func (k *Keeper) reject(ctx context.Context, at *record, former string) (string, error) {
	if former == "" && at.Rejects == "" {
		return "", nil
	}
	if former == "" {
		if err := k.table().Delete(ctx); err != nil {
			return at.Rejects, err
		}
		at.Rejects = ""
		return "", k.document().Save(*at)
	}
	own, err := k.own(*at)
	if err != nil {
		return "", err
	}
	if at.Rejects != former {
		at.Rejects = former
		if err := k.document().Save(*at); err != nil {
			return "", err
		}
	}
	if err := k.table().Set(ctx, former, own); err != nil {
		return "", err
	}
	return former, nil
}

func (k *Keeper) table() reject.Table { return reject.Table{Commands: k.o.Commands} }

func (k *Keeper) path(name string) string { return filepath.Join(k.o.Root, name) }

// message fits an error into a report.
func message(err error) string {
	if err == nil {
		return ""
	}
	const more = "…"
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(text) > protocol.MaxMessageBytes {
		text = strings.ToValidUTF8(text[:protocol.MaxMessageBytes-len(more)], "") + more
	}
	return text
}
