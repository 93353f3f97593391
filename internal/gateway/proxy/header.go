package proxy

import (
	"errors"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// auditIDHeader names a request in the audit logs of both clusters.
const auditIDHeader = "Audit-ID"

var errImpersonation = errors.New("requests through the gateway can't impersonate: " +
	"kubectl's --as works with the context for direct access")

// passed are the headers of a caller that reach the workload cluster's API server. All others
// stay behind, credentials and names of callers among them. Connection and Upgrade are there
// only if httputil.ReverseProxy has found an upgrade.
func passed() []string {
	return []string{
		"Accept", "Accept-Encoding", "Cache-Control", "Connection", "Content-Encoding", "Content-Type", "If-Match",
		"If-Modified-Since", "If-None-Match", "Kubectl-Command", "Kubectl-Session", "Range", "Sec-Websocket-Extensions",
		"Sec-Websocket-Key", "Sec-Websocket-Protocol", "Sec-Websocket-Version", "Traceparent", "Tracestate", "Upgrade",
		"User-Agent", "X-Stream-Protocol-Version",
	}
}

// checkHeader refuses requests whose caller asks to be somebody else: with a header, a trailer,
// or a header that it declares to be for one connection only.
func checkHeader(r *http.Request) error {
	for _, header := range []http.Header{r.Header, r.Trailer} {
		for name := range header {
			if isImpersonation(name) {
				return errImpersonation
			}
		}
	}
	for _, name := range []string{"Connection", "Trailer", "Te"} {
		for _, value := range r.Header.Values(name) {
			for token := range strings.SplitSeq(value, ",") {
				if isImpersonation(strings.TrimSpace(token)) {
					return errImpersonation
				}
			}
		}
	}
	return nil
}

func isImpersonation(name string) bool {
	return strings.HasPrefix(strings.ToLower(name), "impersonate-")
}

// headerFor builds the header of the request to the workload cluster: what the caller may
// pass, the proxy's own token, and whom it impersonates.
func headerFor(in http.Header, as Identity, token, auditID string) http.Header {
	out := http.Header{}
	for _, name := range passed() {
		if values := in.Values(name); len(values) > 0 {
			out[name] = values
		}
	}
	// The WebSocket client of browsers carries a token as a protocol.
	if protocols := withoutTokens(out.Values("Sec-Websocket-Protocol")); len(protocols) > 0 {
		out["Sec-Websocket-Protocol"] = protocols
	} else {
		out.Del("Sec-Websocket-Protocol")
	}
	out.Set("Authorization", "Bearer "+token)
	out.Set(auditIDHeader, auditID)
	out.Set(authenticationv1.ImpersonateUserHeader, as.User)
	for _, group := range as.Groups {
		out.Add(authenticationv1.ImpersonateGroupHeader, group)
	}
	return out
}

// tokenProtocol starts the protocol that carries a token (KEP-2718, "Sec-WebSocket-Protocol").
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

// withoutTokens removes protocols that carry a token from a list of protocols.
func withoutTokens(values []string) []string {
	var out []string
	for _, value := range values {
		for protocol := range strings.SplitSeq(value, ",") {
			if protocol = strings.TrimSpace(protocol); protocol != "" && !strings.HasPrefix(protocol, tokenProtocol) {
				out = append(out, protocol)
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return []string{strings.Join(out, ", ")}
}
