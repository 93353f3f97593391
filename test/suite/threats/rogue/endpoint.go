package main

import (
	"context"
	"net"
	"strconv"
	"time"
)

func (r *rogue) endpointAttempts() []attempt {
	return []attempt{
		{"claim the addresses of others", r.claimAddresses},
		{"report on the endpoint of others", r.reportOnEndpoint},
		{"handshake for a thousand server names", r.nameServers},
	}
}

// claimAddresses reports the victim's addresses as the rogue's own, from its main host and from a pending one.
func (r *rogue) claimAddresses(ctx context.Context, t *tally) error {
	pending, err := r.newCaller(source(4))
	if err != nil {
		return err
	}
	defer pending.hangUp()
	t.enrolled(pending.call(ctx, request{operation: "enrol", token: r.ManualToken, body: pending.modest("boot")}))
	addresses := []any{}
	for _, kind := range []string{"InternalIP", "ExternalIP", "Hostname"} {
		for _, address := range []string{r.Victim.Address, r.Victim.VirtualIP} {
			addresses = append(addresses, map[string]any{"type": kind, "address": address})
		}
	}
	for _, c := range []*caller{r.main, pending} {
		t.add(c.insist(ctx, request{operation: "report", body: map[string]any{
			"addresses": addresses,
			"inventory": map[string]any{"nics": []any{map[string]any{
				"name": "eth0", "defaultRoute": true, "addresses": []string{r.Victim.Address + "/8", r.Victim.VirtualIP + "/8"},
			}}},
		}}))
	}
	return nil
}

// reportOnEndpoint reports that the victim's endpoint is dead, and that the rogue is it.
func (r *rogue) reportOnEndpoint(ctx context.Context, t *tally) error {
	for _, address := range []string{r.Victim.Address, r.Victim.VirtualIP} {
		endpoint := net.JoinHostPort(address, strconv.Itoa(r.Victim.Port))
		for _, ready := range []bool{true, false} {
			body := map[string]any{"endpoint": map[string]any{
				"kubeconfigs": endpoint, "workload": endpoint, "rejects": endpoint, "message": "<",
				"probe":     map[string]any{"endpoint": endpoint, "reachable": ready, "forSeconds": 86400},
				"apiServer": map[string]any{"ready": !ready, "forSeconds": 86400, "certificateNames": []string{address}},
			}}
			if err := r.both(func(c *caller) { t.add(c.insist(ctx, request{operation: "report", header: r.home(), body: body})) }); err != nil {
				return err
			}
			pause(ctx, time.Second)
		}
	}
	return nil
}

// nameServers has the manager look for certificates of a thousand names, some of them no names at all.
func (r *rogue) nameServers(ctx context.Context, t *tally) error {
	return each(ctx, strangers, atOnce, func(ctx context.Context, i int) error {
		c, err := r.newCaller(source(1 + i%50))
		if err != nil {
			return err
		}
		name := "name-" + strconv.Itoa(i) + ".example"
		if i%10 == 0 {
			name = source(i).String()
		}
		if conn, ok := t.opened(c.handshake(ctx, name)); ok {
			_ = conn.Close()
		}
		return nil
	})
}
