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
func (u *upgrade) direct(ctx context.Context) {
	if !u.isAtEndpoint(ctx) {
		return
	}
	switch u.at.Step {
	case stepKubeadm:
		u.redirect(ctx)
	case stepDrain, stepKubelet, stepGate:
		u.cut(ctx)
	case stepBack:
		if (wayBack{u}).goesAllBack() {
			u.redirect(ctx)
		} else {
			u.cut(ctx)
		}
	}
}

// settle has the clients of the endpoint come back after the way back, once this host's API
// server is ready.
func (w wayBack) settle(ctx context.Context) {
	if !w.isAtEndpoint(ctx) {
		return
	}
	version, err := w.Cluster.LocalServer(ctx)
	if err != nil || w.goesAllBack() && version != w.at.Server {
		w.redirect(ctx)
	} else {
		w.cut(ctx)
	}
}

// isAtEndpoint reports whether there is something to redirect, or may have been.
func (u *upgrade) isAtEndpoint(ctx context.Context) bool {
	return u.isControlPlane() && (u.redirectWanted() != nil || u.isTablePut(ctx))
}

// redirectWanted returns what the plan wants to be redirected, or nil. A plan of another
// operation says nothing of it, so what was recorded with the request counts then.
func (u *upgrade) redirectWanted() *protocol.Redirect {
	wanted := u.Plan().Operation
	if wanted == nil || wanted.Type != u.op.Type || wanted.ID != u.op.ID || wanted.NodeUpgrade == nil {
		return u.want.Redirect
	}
	return wanted.NodeUpgrade.Redirect
}

// redirect has connections from outside go to an API server that is ready. If none is, they
// come to this host's own one.
func (u *upgrade) redirect(ctx context.Context) {
	rules, servers, err := u.rules()
	if err == nil && u.redirection.isBlocked {
		err = errBlocked
	}
	if err != nil {
		u.leave(ctx, err)
		return
	}
	if rules.Server = u.choose(ctx, rules.Endpoint.Addr().String(), servers); !rules.Server.IsValid() {
		u.leave(ctx, errors.New("no other API server is ready"))
		return
	}
	u.redirection.isPut, u.redirection.isKnown = true, true
	if err := u.table().Set(ctx, rules); err != nil {
		u.leave(ctx, err)
		return
	}
	if u.table().IsBlocked(ctx) {
		u.redirection.isBlocked = true
		u.leave(ctx, errBlocked)
		return
	}
	u.say(ctx, fmt.Sprintf("connections to the endpoint go to %s", rules.Server))
}

// leave ends the redirection because of an error.
func (u *upgrade) leave(ctx context.Context, cause error) {
	u.say(ctx, "connections to the endpoint are not redirected: "+short(cause))
	u.cut(ctx)
}

// cut has no connection redirected, and cuts those that are. It does nothing without a
// table.
func (u *upgrade) cut(ctx context.Context) {
	if !u.isTablePut(ctx) {
		return
	}
	rules, _, err := u.rules()
	if err == nil {
		err = u.table().Set(ctx, rules)
	}
	if err != nil {
		err = u.endRedirection(ctx)
	}
	if err != nil {
		u.say(ctx, short(err))
	}
}

// endRedirection deletes the table if there is one.
func (u *upgrade) endRedirection(ctx context.Context) error {
	if !u.isControlPlane() || !u.isTablePut(ctx) {
		return nil
	}
	if err := u.table().Delete(ctx); err != nil {
		return err
	}
	u.redirection.isPut = false
	return nil
}

// isTablePut reports whether the table may exist. An earlier agent may have put it.
func (u *upgrade) isTablePut(ctx context.Context) bool {
	if !u.redirection.isKnown {
		u.redirection.isPut, u.redirection.isKnown = u.table().Exists(ctx), true
	}
	return u.redirection.isPut
}

func (u *upgrade) table() redirect.Table { return redirect.Table{Commands: u.Commands} }

// rules returns the rules without a server, and the servers that there are.
func (u *upgrade) rules() (redirect.Rules, []netip.AddrPort, error) {
	wanted := u.redirectWanted()
	if wanted == nil {
		return redirect.Rules{}, nil, errors.New("the endpoint is not at this host")
	}
	var local []netip.Addr
	for _, text := range u.LocalAddresses() {
		if address, err := netip.ParseAddr(text); err == nil {
			local = append(local, address.Unmap())
		}
	}
	target, err := redirect.Parse(*wanted, local)
	if err != nil {
		return redirect.Rules{}, nil, err
	}
	return redirect.Rules{Endpoint: target.Endpoint, Local: local}, target.Servers, redirect.CheckForwarding(u.Root, target.Endpoint.Addr())
}

// choose returns the API server that connections go to: the same as before unless it has
// failed repeatedly, otherwise the first that is ready.
func (u *upgrade) choose(ctx context.Context, name string, servers []netip.AddrPort) netip.AddrPort {
	r := &u.redirection
	isKnown := slices.Contains(servers, r.server)
	if isKnown && r.misses == 0 {
		servers = []netip.AddrPort{r.server}
	}
	ready := u.ready(ctx, name, servers)
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
func (u *upgrade) ready(ctx context.Context, name string, servers []netip.AddrPort) []netip.AddrPort {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	isReady := make([]bool, len(servers))
	var asked sync.WaitGroup
	for i, server := range servers {
		asked.Go(func() { isReady[i] = u.Cluster.Ready(ctx, server.String(), name) == nil })
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
func (u *upgrade) say(ctx context.Context, text string) {
	if ctx.Err() != nil || u.redirection.said == text {
		return
	}
	u.redirection.said = text
	u.Log.Info("The endpoint during the upgrade", "id", u.op.ID, "state", text)
	u.progress(u.at.Step + ": " + text)
}
