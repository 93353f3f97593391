package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// proxyHeaders are headers of the PROXY protocol, of both versions, by which a connection comes from an address.
func proxyHeaders(from netip.Addr) []string {
	const signature, local, proxied, overIPv4 = "\r\n\r\n\x00\r\nQUIT\n", "\x20", "\x21", "\x11"
	addresses := append(from.AsSlice(), 192, 0, 2, 1)
	addresses = binary.BigEndian.AppendUint16(addresses, 4711)
	addresses = binary.BigEndian.AppendUint16(addresses, 443)
	length := string(binary.BigEndian.AppendUint16(nil, uint16(len(addresses))))
	return []string{
		fmt.Sprintf("PROXY TCP4 %s 192.0.2.1 4711 443\r\n", from),
		fmt.Sprintf("PROXY TCP6 ::ffff:%s ::1 4711 443\r\n", from),
		"PROXY UNKNOWN\r\n",
		signature + proxied + overIPv4 + length + string(addresses),
		signature + local + "\x00\x00\x00",
	}
}

// forgeProxyHeaders begins connections like a proxy, before and after the TLS handshake. The count of "unforged STATUS" is
// what the same key is answered without that.
func (r *rogue) forgeProxyHeaders(ctx context.Context, t *tally) error {
	from, err := netip.ParseAddr(r.ForgedAddress)
	if err != nil {
		return fmt.Errorf("reading the forged address: %w", err)
	}
	for i, header := range proxyHeaders(from) {
		known, err := r.callerWith(r.main.key, source(120+i))
		if err != nil {
			return err
		}
		stranger, err := r.newCaller(source(130 + i))
		if err != nil {
			return err
		}
		known.greeting, stranger.greeting = header, header
		plan := request{operation: "plan", query: url.Values{"boot": {mainBoot}}}
		t.add(known.call(ctx, plan))
		t.add(known.report(ctx, map[string]any{"cleanliness": map[string]any{"clean": false, "leftovers": []string{"forged"}}}))
		t.enrolled(stranger.call(ctx, request{operation: "enrol", token: r.Token, body: stranger.modest("boot")}))
		known.hangUp()
		known.greeting = ""
		if err := known.greetWithin(ctx, t, header); err != nil {
			return err
		}
		t.count("unforged " + known.insist(ctx, plan).String())
		known.hangUp()
	}
	return nil
}

// greetWithin sends a header after the TLS handshake, and a request after the header.
func (c *caller) greetWithin(ctx context.Context, t *tally, header string) error {
	o, err := c.rogue.document.operation("plan")
	if err != nil {
		return err
	}
	conn, err := c.handshake(ctx, "")
	if err != nil {
		t.count("closed")
		return nil
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = fmt.Fprintf(conn, "%sGET %s?boot=%s HTTP/1.1\r\nHost: x\r\n\r\n", header, o.path, mainBoot)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.count("closed")
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	_ = response.Body.Close()
	c.rogue.search(response.Header, body)
	t.add(answer{status: response.StatusCode, body: body})
	return nil
}
