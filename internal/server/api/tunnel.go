package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/tunnels"
)

// upgradeTimeout bounds how long the answer of an upgrade may take to be sent.
const upgradeTimeout = 10 * time.Second

// tunnel turns the connection of the request into the host's tunnel. The goroutine of the
// request ends then.
func (h *Handler) tunnel(w http.ResponseWriter, r *http.Request, from caller) error {
	key := client.ObjectKeyFromObject(from.host)
	if after, ok := h.sessions.AllowRequest(key); !ok {
		return problem.TooManyRequests(after)
	}
	if err := checkUpgrade(w, r, protocol.TunnelProtocol); err != nil {
		return err
	}
	boot, err := parameter(r, "boot")
	if err != nil {
		return err
	}
	if boot == "" {
		return problem.BadRequest("The request has no boot ID")
	}
	holder := tunnels.Holder{KeyFingerprint: from.fingerprint, Boot: boot}
	if claim := from.host.Spec.Claim; claim != nil {
		holder.ClaimID = claim.ID
	}
	if err := h.tunnels.Check(r.Context(), key, holder); err != nil {
		return err
	}
	conn, err := h.upgrade(w, protocol.TunnelProtocol)
	if err == nil && conn != nil {
		h.tunnels.Open(r.Context(), from.host, holder, conn)
	}
	return err
}

// upgrade takes the connection of a request and switches it to a protocol. It returns nil if the caller does
// not go along; the connection is closed then.
func (h *Handler) upgrade(w http.ResponseWriter, to string) (net.Conn, error) {
	select {
	case <-h.draining:
		return nil, problem.Draining()
	default:
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("taking the connection: %w", err)
	}
	if !switchProtocols(conn, buffered, to) {
		_ = conn.Close()
		return nil, nil
	}
	return conn, nil
}

// checkUpgrade returns a problem if the request does not ask for a protocol.
func checkUpgrade(w http.ResponseWriter, r *http.Request, to string) error {
	if r.ProtoMajor != 1 {
		return problem.New(http.StatusUpgradeRequired, problem.Blank, "The route needs a connection of HTTP/1.1")
	}
	if !hasToken(r.Header, "Connection", "upgrade") || !hasToken(r.Header, "Upgrade", to) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", to)
		return problem.New(http.StatusUpgradeRequired, problem.Blank, "The route needs an upgrade to "+to)
	}
	if r.ContentLength != 0 {
		return problem.BadRequest("The request has a body")
	}
	return nil
}

// hasToken reports whether a header, which is a list, has a token.
func hasToken(header http.Header, name, token string) bool {
	for _, value := range header.Values(name) {
		for part := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// switchProtocols answers the request. It reports false if the caller has sent something
// before, which belongs to neither protocol, or takes no answer.
func switchProtocols(conn net.Conn, buffered *bufio.ReadWriter, to string) bool {
	if buffered.Reader.Buffered() > 0 || conn.SetDeadline(time.Now().Add(upgradeTimeout)) != nil {
		return false
	}
	_, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+to+"\r\n\r\n")
	return err == nil && conn.SetDeadline(time.Time{}) == nil
}
