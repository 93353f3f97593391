package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"
)

const (
	// strangers is how many keys without a token try to enrol.
	strangers = 1000
	// insistent is how many of them try again while the manager takes no more strangers.
	insistent = 60
	// reuses is how many keys use a token that is valid once.
	reuses = 50
	// atOnce is how many requests are sent at a time.
	atOnce = 32
)

// modest is the body of an enrolment as a small host sends it.
func (c *caller) modest(boot string) map[string]any {
	addresses := []any{}
	if c == c.rogue.main && c.rogue.Address != "" {
		addresses = append(addresses, map[string]any{"type": "InternalIP", "address": c.rogue.Address})
	}
	return map[string]any{
		"hello": map[string]any{
			"protocol": 1, "agentVersion": "v9.9.9", "bootID": boot,
			"capabilities": slices.Concat(c.rogue.document.Components.Schemas["OperationReport"].Properties["type"].Enum, c.further),
		},
		"inventory": map[string]any{}, "addresses": addresses, "cleanliness": map[string]any{"clean": true},
	}
}

// previous claims to have been the victim.
func (r *rogue) previous() map[string]any {
	return map[string]any{"hostID": r.Victim.HostID, "namespace": r.Victim.Namespace, "name": r.Victim.Name}
}

// huge is a body of which everything is as large as the document allows, up to about 256 KiB.
func (r *rogue) huge(operation string) (map[string]any, error) {
	return largest{document: r.document, text: "<", length: 50, items: 32}.body(operation)
}

func (r *rogue) enrolmentAttempts() []attempt {
	return []attempt{
		{"join with a token, and run the bootstrap of its own cluster", r.join},
		{"enrol a thousand keys without a token", func(ctx context.Context, t *tally) error {
			return r.enrolStrangers(ctx, t, func(c *caller) map[string]any { return c.modest("boot") })
		}},
		{"forge lines of the audit log", r.forgeLines},
		{"shape the capacity with hosts that nobody has approved", guest{r}.shapeCapacity},
		{"enrol a thousand keys that claim to have been the victim", func(ctx context.Context, t *tally) error {
			return r.enrolStrangers(ctx, t, func(c *caller) map[string]any {
				body, err := r.huge("enrol")
				if err != nil {
					body = c.modest("boot")
				}
				body["previous"] = r.previous()
				return body
			})
		}},
		{"use a token for one host fifty times at once", r.reuseToken},
		{"take the victim's name with a token of its own", r.takeName},
	}
}

// join makes the main host a control-plane host of the rogue's own cluster.
func (r *rogue) join(ctx context.Context, t *tally) error {
	var err error
	if r.main, err = r.newCaller(source(0)); err != nil {
		return err
	}
	return r.main.join(ctx, t, mainBoot)
}

// join enrols a host and runs the bootstrap of the machine that gets it.
func (c *caller) join(ctx context.Context, t *tally, boot string) error {
	operation, err := c.awaitBootstrap(ctx, t, c.rogue.Token, boot)
	if err != nil {
		return err
	}
	t.add(c.call(ctx, request{operation: "bootstrap", query: url.Values{"operation": {operation}}}))
	t.add(c.report(ctx, map[string]any{"operations": []any{map[string]any{"type": "Bootstrap", "id": operation, "state": "Succeeded"}}}))
	return nil
}

// awaitBootstrap enrols a host, and returns the bootstrap of the machine that gets it.
func (c *caller) awaitBootstrap(ctx context.Context, t *tally, token, boot string) (operation string, err error) {
	if name := t.enrolled(c.call(ctx, request{operation: "enrol", token: token, body: c.modest(boot)})); name == "" {
		return "", fmt.Errorf("the token enrols nobody: %v", t.answers)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	revision := ""
	for {
		got := t.add(c.poll(ctx, revision, boot))
		var plan struct {
			Revision  string
			Operation *struct{ Type, ID string }
		}
		if got.status == http.StatusOK && json.Unmarshal(got.body, &plan) == nil {
			revision = plan.Revision
		}
		if plan.Operation != nil && plan.Operation.Type == "Bootstrap" {
			return plan.Operation.ID, nil
		}
		if ctx.Err() != nil {
			return "", errors.New("no machine got the rogue's host")
		}
		if got.status != http.StatusOK {
			pause(ctx, time.Second)
		}
	}
}

// poll asks for a plan.
func (c *caller) poll(ctx context.Context, after, boot string) answer {
	query := url.Values{}
	if after != "" {
		query.Set("after", after)
	}
	if boot != "" {
		query.Set("boot", boot)
	}
	return c.call(ctx, request{operation: "plan", query: query})
}

// report sends a report.
func (c *caller) report(ctx context.Context, body any) answer {
	return c.call(ctx, request{operation: "report", body: body})
}

// enrolStrangers enrols new keys, each from an address of its own.
func (r *rogue) enrolStrangers(ctx context.Context, t *tally, body func(*caller) map[string]any) error {
	return each(ctx, strangers, atOnce, func(ctx context.Context, i int) error {
		c, err := r.newCaller(source(1 + i))
		if err != nil {
			return err
		}
		defer c.hangUp()
		enrolment := request{operation: "enrol", body: body(c)}
		if i < strangers-insistent {
			t.enrolled(c.call(ctx, enrolment))
		} else {
			t.enrolled(c.repeat(ctx, enrolment, http.StatusServiceUnavailable))
		}
		return nil
	})
}

// reuseToken uses a token more often than allowed.
func (r *rogue) reuseToken(ctx context.Context, t *tally) error {
	return each(ctx, reuses, reuses, func(ctx context.Context, i int) error {
		c, err := r.newCaller(source(1 + i))
		if err != nil {
			return err
		}
		defer c.hangUp()
		for range 3 {
			t.enrolled(c.call(ctx, request{operation: "enrol", token: r.SingleToken, body: c.modest("boot")}))
		}
		return nil
	})
}

// takeName enrols as the victim with the rogue's own token.
func (r *rogue) takeName(ctx context.Context, t *tally) error {
	for range 3 {
		c, err := r.newCaller(source(1))
		if err != nil {
			return err
		}
		body := c.modest("boot")
		body["previous"] = r.previous()
		t.enrolled(c.call(ctx, request{operation: "enrol", token: r.Token, body: body}))
		t.add(c.call(ctx, request{operation: "plan", header: r.home()}))
		c.hangUp()
	}
	return nil
}

// forgery is a line that looks like one of the audit log, and begins one in a log of plain text and in one of JSON.
const forgery = "\n\x1b[2K\r{\"logger\":\"audit\",\"decision\":\"Approved\",\"forged\":true}\u2028\r\nI1231 23:59:59.000000 1 log.go:1] \"Approved\" forged=true\n"

// forgeLines puts line breaks wherever a text is allowed.
func (r *rogue) forgeLines(ctx context.Context, t *tally) error {
	for _, namespace := range []string{forgery, r.Victim.Namespace, r.Victim.Namespace + forgery} {
		c, err := r.newCaller(net.IPv4(127, 0, 0, 1), func(certificate *x509.Certificate) {
			certificate.Subject.CommonName, certificate.DNSNames = forgery, []string{"forged.example"}
		})
		if err != nil {
			return err
		}
		body := c.modest(forgery)
		body["previous"] = map[string]any{"hostID": "x" + forgery, "namespace": namespace, "name": "x" + forgery}
		t.enrolled(c.repeat(ctx, request{operation: "enrol", token: url.QueryEscape(forgery), body: body}, http.StatusServiceUnavailable))
		c.hangUp()
	}
	t.add(r.main.report(ctx, map[string]any{
		"hello":       map[string]any{"protocol": 1, "agentVersion": forgery, "bootID": forgery, "capabilities": []string{forgery}},
		"inventory":   map[string]any{"smbios": map[string]any{"serialNumber": forgery}},
		"cleanliness": map[string]any{"clean": false, "leftovers": []string{forgery}},
		"agentUpdate": map[string]any{"version": forgery, "state": "Failed", "message": forgery},
	}))
	return nil
}
