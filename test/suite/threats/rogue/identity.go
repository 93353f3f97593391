package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// home claims to be the victim in the way that the document describes.
func (r *rogue) home() http.Header {
	return http.Header{"Elemental-Home": {r.Victim.Namespace + "/" + r.Victim.Name}}
}

// identities tries to be the victim.
type identities struct{ *rogue }

func (r identities) attempts() []attempt {
	return []attempt{
		{"read the plan of others", r.readPlans},
		{"read the bootstrap data of others", r.readBootstrapData},
		{"read files through the agent's path", r.readFiles},
		{"rotate to the victim's key", r.rotateToVictim},
		{"report operations of others", r.reportOperations},
		{"claim the victim's key in headers", r.claimInHeaders},
	}
}

// both calls do for the main host and for a stranger.
func (r *rogue) both(do func(c *caller)) error {
	stranger, err := r.newCaller(source(2))
	if err != nil {
		return err
	}
	defer stranger.hangUp()
	do(r.main)
	do(stranger)
	return nil
}

// paths returns spellings of a path that a router could mistake for another one.
func (r identities) paths(of string) []string {
	v := r.Victim
	return []string{
		of + "/" + v.Namespace + "/" + v.Name, of + "/" + v.HostID, of + "/../plan", of + "//", "/" + of, strings.ToUpper(of), of + "%2f" + v.HostID,
		"/v1/hosts/" + v.Namespace + "/" + v.Name, "/v1/hosts", "/v1", "/", "/metrics", "/debug/pprof/", "/healthz", "/..%2f..%2fetc%2fpasswd",
	}
}

func (r identities) readPlans(ctx context.Context, t *tally) error {
	v := r.Victim
	return r.both(func(c *caller) {
		for _, query := range []url.Values{
			{}, {"host": {v.Name}}, {"hostID": {v.HostID}}, {"namespace": {v.Namespace}, "name": {v.Name}}, {"after": {v.HostID}},
		} {
			query.Set("boot", mainBoot)
			t.add(c.insist(ctx, request{operation: "plan", query: query, header: r.home()}))
		}
		for _, path := range r.paths("/v1/plan") {
			t.add(c.insist(ctx, request{method: http.MethodGet, path: path, header: r.home()}))
		}
	})
}

func (r identities) readBootstrapData(ctx context.Context, t *tally) error {
	v := r.Victim
	return r.both(func(c *caller) {
		for _, id := range []string{v.Operation, v.HostID, v.Name, v.Namespace + "/" + v.Name, "", "*", "../" + v.Operation, strings.ToUpper(v.Operation)} {
			t.add(c.insist(ctx, request{operation: "bootstrap", query: url.Values{"operation": {id}}, header: r.home()}))
		}
		for _, path := range r.paths("/v1/bootstrap") {
			t.add(c.insist(ctx, request{method: http.MethodGet, path: path + "?operation=" + url.QueryEscape(v.Operation), header: r.home()}))
		}
	})
}

func (r identities) readFiles(ctx context.Context, t *tally) error {
	return r.both(func(c *caller) {
		for _, name := range []string{"", strings.Repeat("0", 64), "../../../etc/passwd", "elemental-agent-linux-amd64", "/proc/self/environ"} {
			t.add(c.insist(ctx, request{operation: "agent", query: url.Values{"sha256": {name}}, header: r.home()}))
		}
	})
}

// rotateToVictim announces the victim's key as the next one. Whoever has that key would then be the rogue's host, and the
// victim's key would belong to two hosts.
func (r identities) rotateToVictim(ctx context.Context, t *tally) error {
	digest := sha256.Sum256(r.Victim.PublicKey)
	signature, err := ecdsa.SignASN1(rand.Reader, r.main.key, digest[:])
	if err != nil {
		return fmt.Errorf("signing: %w", err)
	}
	for _, s := range [][]byte{signature, nil, r.Victim.PublicKey} {
		for _, generation := range []int64{0, 1, 2, 1 << 62} {
			t.add(r.main.insist(ctx, request{operation: "rotate", body: map[string]any{
				"publicKey": r.Victim.PublicKey, "signature": s, "generation": generation,
			}}))
		}
	}
	return nil
}

// reportOperations ends the victim's operations, or ones that nobody has asked for.
func (r identities) reportOperations(ctx context.Context, t *tally) error {
	types := r.document.Components.Schemas["OperationReport"].Properties["type"].Enum
	return r.both(func(c *caller) {
		for _, kind := range types {
			for _, state := range []string{"Succeeded", "Failed"} {
				t.add(c.insist(ctx, request{operation: "report", header: r.home(), body: map[string]any{"operations": []any{
					map[string]any{"type": kind, "id": r.Victim.Operation, "state": state, "message": "<"},
				}}}))
			}
		}
	})
}

// claimInHeaders sends headers in which proxies pass on certificates and users.
func (r identities) claimInHeaders(ctx context.Context, t *tally) error {
	header := r.home()
	for _, name := range []string{
		"X-Forwarded-Client-Cert", "X-Client-Cert", "X-Ssl-Client-Cert", "Ssl-Client-Cert", "X-Remote-User", "Impersonate-User", "X-Forwarded-For", "Forwarded", "X-Real-Ip",
	} {
		header.Set(name, r.Victim.HostID)
	}
	return r.both(func(c *caller) {
		t.add(c.insist(ctx, request{operation: "plan", query: url.Values{"boot": {mainBoot}}, header: header}))
		t.add(c.insist(ctx, request{operation: "bootstrap", query: url.Values{"operation": {r.Victim.Operation}}, header: header}))
	})
}
