package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// ErrConnectionReplaced is the error of Plan when its request was about to be sent over
// another connection than the one that the plan's revision came over.
var ErrConnectionReplaced = errors.New("the connection to the manager was replaced")

// Plan waits for a plan with another revision than after. boot is the host's boot ID. It
// returns nil if there was no such plan within protocol.PollTimeout.
//
// after is what the answer to the previous call said. If the connection of that call was
// replaced, another manager may answer, or one that was restored from a backup. Plan then
// waits for nothing and returns ErrConnectionReplaced; the caller must ask for the whole
// plan, with a blank after.
func (c *Client) Plan(ctx context.Context, after, boot string) (*protocol.Plan, error) {
	var plan *protocol.Plan
	err := c.call(ctx, call{
		name: "fetching the plan", method: http.MethodGet, path: protocol.PathPlan, query: url.Values{"after": {after}, "boot": {boot}},
		isPoll: true, timeout: protocol.PollTimeout + pollSlack, accept: []int{http.StatusOK, http.StatusNoContent},
	}, func(r *http.Response) error {
		if r.StatusCode == http.StatusNoContent {
			return nil
		}
		plan = &protocol.Plan{}
		if err := decode(r, plan); err != nil {
			return err
		}
		c.clock.recordServerTime(plan.ServerTime, r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return plan, nil
}

// pollTie ties a poll to the connection of the previous one. A transport replaces a
// broken connection by itself, and a call may go to another server, so only the
// connection shows that the same process answers.
type pollTie struct {
	// former is the connection that the poll must use; nil if it may use any.
	former net.Conn
	cancel context.CancelCauseFunc

	mu   sync.Mutex
	used net.Conn
}

// tiePoll returns a context for a poll and its tie. The tie is nil if the poll knows a
// revision and this client has no connection that it came over.
func (c *Client) tiePoll(ctx context.Context, poll call) (context.Context, *pollTie) {
	tie := &pollTie{}
	if poll.query.Get("after") != "" {
		c.mu.Lock()
		tie.former = c.polledOver
		c.mu.Unlock()
		if tie.former == nil {
			return ctx, nil
		}
	}
	ctx, tie.cancel = context.WithCancelCause(ctx)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: tie.gotConn}), tie
}

// gotConn is called before the request is sent over a connection.
func (t *pollTie) gotConn(info httptrace.GotConnInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = info.Conn
	if t.isReplaced() {
		t.cancel(ErrConnectionReplaced)
	}
}

func (t *pollTie) isReplaced() bool { return t.former != nil && t.used != nil && t.used != t.former }

// end is called with the result of the poll and returns its error.
func (t *pollTie) end(c *Client, err error) error {
	defer t.cancel(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isReplaced() {
		return ErrConnectionReplaced
	}
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.polledOver = t.used
	}
	return err
}
