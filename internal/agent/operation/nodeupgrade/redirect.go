package nodeupgrade

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/redirect"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// serverTimeout is how long another API server may take to say that it is ready.
	serverTimeout = 3 * time.Second
	// maxMisses is how often in a row it may fail to say so.
	maxMisses = 2
)

// errBlocked says that redirected connections do not get through.
var errBlocked = errors.New("the host drops what is redirected: look at its packet filter and at bridges")

// redirection keeps clients of the control plane endpoint served while the API server of this
// host, which has the endpoint's address, is replaced. What fails in it never fails the
// upgrade.
type redirection struct {
	*upgrade

	// server is the API server that connections go to; the zero value for none.
	server netip.AddrPort
	// misses counts how often in a row server was not ready.
	misses int
	// isPut is true if the table may exist, once isKnown.
	isPut, isKnown bool
	// isBlocked is true once redirected connections did not get through.
	isBlocked bool
	// said is what was logged last.
	said string
}

// direct has the clients of the endpoint go where the step needs them: to another API server
// while that of this host is replaced, and back after that. Before a new kubelet starts, no
// connection leads to another API server any more. It is called again and again while a step
// waits, because the other API server may fail too.
func (r *redirection) direct(ctx context.Context) {
	if !r.isAtEndpoint(ctx) {
		return
	}
	switch r.at.Step {
	case stepKubeadm:
		r.redirect(ctx)
	case stepDrain, stepKubelet, stepGate:
		r.cut(ctx)
	case stepBack:
		if (wayBack{r.upgrade}).goesAllBack() {
			r.redirect(ctx)
		} else {
			r.cut(ctx)
		}
	}
}

// settle has the clients of the endpoint come back after the way back, once this host's API
// server is ready.
func (r *redirection) settle(ctx context.Context) {
	if !r.isAtEndpoint(ctx) {
		return
	}
	version, err := r.Cluster.LocalServer(ctx)
	if err != nil || (wayBack{r.upgrade}).goesAllBack() && version != r.at.Server {
		r.redirect(ctx)
	} else {
		r.cut(ctx)
	}
}

// isAtEndpoint reports whether there is something to redirect, or may have been.
func (r *redirection) isAtEndpoint(ctx context.Context) bool {
	return r.isControlPlane() && (r.redirectWanted() != nil || r.isTablePut(ctx))
}

// redirectWanted returns what the plan wants to be redirected, or nil. A plan of another
// operation says nothing of it, so what was recorded with the request counts then.
func (r *redirection) redirectWanted() *protocol.Redirect {
	wanted := r.Plan().Operation
	if wanted == nil || wanted.Type != r.op.Type || wanted.ID != r.op.ID || wanted.NodeUpgrade == nil {
		return r.want.Redirect
	}
	return wanted.NodeUpgrade.Redirect
}

// redirect has connections from outside go to an API server that is ready. If none is, they
// come to this host's own one.
func (r *redirection) redirect(ctx context.Context) {
	rules, servers, err := r.rules()
	if err == nil && r.isBlocked {
		err = errBlocked
	}
	if err != nil {
		r.leave(ctx, err)
		return
	}
	if rules.Server = r.choose(ctx, rules.Endpoint.Addr().String(), servers); !rules.Server.IsValid() {
		r.leave(ctx, errors.New("no other API server is ready"))
		return
	}
	r.isPut, r.isKnown = true, true
	if err := r.table().Set(ctx, rules); err != nil {
		r.leave(ctx, err)
		return
	}
	if r.table().IsBlocked(ctx) {
		r.isBlocked = true
		r.leave(ctx, errBlocked)
		return
	}
	r.say(ctx, fmt.Sprintf("connections to the endpoint go to %s", rules.Server))
}

// leave ends the redirection because of an error.
func (r *redirection) leave(ctx context.Context, cause error) {
	r.say(ctx, "the endpoint is not redirected: "+sequence.Short(cause))
	r.cut(ctx)
}

// cut has no connection redirected, and cuts those that are. It does nothing without a
// table.
func (r *redirection) cut(ctx context.Context) {
	if !r.isTablePut(ctx) {
		return
	}
	rules, _, err := r.rules()
	if err == nil {
		err = r.table().Set(ctx, rules)
	}
	if err != nil {
		err = r.end(ctx)
	}
	if err != nil {
		r.say(ctx, sequence.Short(err))
	}
}

// end deletes the table if it may exist.
func (r *redirection) end(ctx context.Context) error {
	if !r.isControlPlane() || !r.isTablePut(ctx) {
		return nil
	}
	if err := r.table().Delete(ctx); err != nil {
		return err
	}
	r.isPut = false
	return nil
}

// endSuperseded returns err. A reset that supersedes the upgrade finds no redirection.
func (r *redirection) endSuperseded(ctx context.Context, err error) error {
	if errors.Is(err, operation.ErrSuperseded) {
		return errors.Join(err, r.end(context.WithoutCancel(ctx)))
	}
	return err
}

// isTablePut reports whether the table may exist. An earlier agent may have put it.
func (r *redirection) isTablePut(ctx context.Context) bool {
	if !r.isKnown {
		r.isPut, r.isKnown = r.table().Exists(ctx), true
	}
	return r.isPut
}

func (r *redirection) table() redirect.Table { return redirect.Table{Commands: r.Commands} }

// rules returns the rules without a server, and the servers that there are.
func (r *redirection) rules() (redirect.Rules, []netip.AddrPort, error) {
	wanted := r.redirectWanted()
	if wanted == nil {
		return redirect.Rules{}, nil, errors.New("the endpoint is not at this host")
	}
	var local []netip.Addr
	for _, text := range r.LocalAddresses() {
		if address, err := netip.ParseAddr(text); err == nil {
			local = append(local, address.Unmap())
		}
	}
	target, err := redirect.Parse(*wanted, local)
	if err != nil {
		return redirect.Rules{}, nil, err
	}
	return redirect.Rules{Endpoint: target.Endpoint, Local: local}, target.Servers, redirect.CheckForwarding(r.Root, target.Endpoint.Addr())
}

// choose returns the API server that connections go to: the same as before unless it has
// failed repeatedly, otherwise the first that is ready.
func (r *redirection) choose(ctx context.Context, name string, servers []netip.AddrPort) netip.AddrPort {
	isKnown := slices.Contains(servers, r.server)
	if isKnown && r.misses == 0 {
		servers = []netip.AddrPort{r.server}
	}
	ready := r.ready(ctx, name, servers)
	switch {
	case slices.Contains(ready, r.server):
		r.misses = 0
	case isKnown && r.misses+1 < maxMisses:
		r.misses++
	case len(ready) > 0:
		r.server, r.misses = ready[0], 0
	default:
		r.server, r.misses = netip.AddrPort{}, 0
	}
	return r.server
}

// ready returns the API servers that are ready, and whose certificates are the cluster's and
// cover name, as clients demand it.
func (r *redirection) ready(ctx context.Context, name string, servers []netip.AddrPort) []netip.AddrPort {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	isReady := make([]bool, len(servers))
	var asked sync.WaitGroup
	for i, server := range servers {
		asked.Go(func() { isReady[i] = r.Cluster.Ready(ctx, server.String(), name) == nil })
	}
	asked.Wait()
	var ready []netip.AddrPort
	for i, server := range servers {
		if isReady[i] {
			ready = append(ready, server)
		}
	}
	return ready
}

// say logs a text and shows it as part of the step, once.
func (r *redirection) say(ctx context.Context, text string) {
	if ctx.Err() != nil || r.said == text {
		return
	}
	r.said = text
	r.Log.Info("The endpoint during the upgrade", "id", r.op.ID, "state", text)
	r.progress(r.at.Step + ": " + text)
}
