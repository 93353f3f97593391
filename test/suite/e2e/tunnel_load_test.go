//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// loadFolder has the load's credentials and logs.
const loadFolder = "/var/tmp/load"

// loadScript keeps twenty watches open through the host's forwarder, and downloads over new connections
// all the time, of which any answer counts. curl never connects again, so a process that runs has
// its first connection.
const loadScript = `
cd ` + loadFolder + `
field() { sed -n "s/^ *$1: //p" admin.conf | head -1; }
field certificate-authority-data | base64 -d >ca.crt
field client-certificate-data | base64 -d >client.crt
field client-key-data | base64 -d >client.key
server=$(field server)
get() { curl --silent --show-error --no-buffer --cacert ca.crt --cert client.crt --key client.key "$@"; }
for i in $(seq 20); do
	get --fail "$server/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?watch=1&timeoutSeconds=3600" >watch-$i.log 2>watch-$i.err &
	echo $! >>watches
done
while :; do
	if get --max-time 60 --output /dev/null "$server/openapi/v2"; then echo done; else echo failed; fi >>downloads 2>>downloads.err
	sleep 0.2
done
`

// killAndUpdate kills the agent and replaces its program, in turn, a number of times. After each
// update it waits until the forwarder is of the new program.
const killAndUpdate = `
program=/usr/local/bin/elemental-agent
for round in $(seq %d); do
	systemctl kill --kill-who=main --signal=KILL elemental-agent
	systemctl start elemental-agent
	cp $program $program.next && mv $program.next $program
	systemctl restart elemental-agent
	new=$(stat --format %%i $program)
	for try in $(seq 600); do
		for pid in $(pgrep -f "elemental-agent [e]ndpoint"); do
			[ "$(stat --dereference --format %%i /proc/$pid/exe 2>/dev/null)" != "$new" ] || break 2
		done
		if [ $try = 600 ]; then echo "no forwarder of the new program in round $round"; exit 1; fi
		sleep 0.1
	done
done
echo "$(pgrep -c -f 'elemental-agent [e]ndpoint') forwarders at the end"
`

// startLoad starts the load on a host, with an administrator's kubeconfig.
func startLoad(ctx context.Context, box *engine.Host, kubeconfig string) {
	GinkgoHelper()
	shell(ctx, box, "rm -rf "+loadFolder+" && mkdir -m 700 "+loadFolder)
	Expect(box.Put(ctx,
		engine.File{Path: loadFolder + "/admin.conf", Mode: 0o600, Content: []byte(kubeconfig)},
		engine.File{Path: loadFolder + "/load.sh", Mode: 0o600, Content: []byte(loadScript)},
	)).To(Succeed())
	shell(ctx, box, "systemd-run --quiet --unit load sh "+loadFolder+"/load.sh")
	DeferCleanup(func(ctx context.Context) { shell(ctx, box, "systemctl stop load; rm -rf "+loadFolder) })
	Eventually(func() string {
		return shell(ctx, box, "cd "+loadFolder+" && find . -name 'watch-*.log' -size +0 | wc -l; grep -c done downloads || true")
	}).WithTimeout(time.Minute).Should(MatchRegexp(`^20\n[1-9]`))
}

// expectLoad checks that every watch still has its connection and gets events, and that no
// download has failed.
func expectLoad(ctx context.Context, box *engine.Host) {
	GinkgoHelper()
	alive := shell(ctx, box, "cd "+loadFolder+" && for pid in $(cat watches); do kill -0 $pid && echo alive; done | wc -l")
	Expect(strings.TrimSpace(alive)).To(Equal("20"), "%s: watches whose connections are open", box.Name)
	shell(ctx, box, "touch "+loadFolder+"/mark")
	Eventually(func() string {
		return shell(ctx, box, "cd "+loadFolder+" && find . -name 'watch-*.log' -newer mark | wc -l")
	}).WithTimeout(time.Minute).Should(Equal("20"), "%s: every watch gets events", box.Name)
	downloads := shell(ctx, box, "cd "+loadFolder+" && sort downloads | uniq --count; cat downloads.err watch-*.err")
	fmt.Printf("  %s: %s\n", box.Name, strings.Join(strings.Fields(downloads), " "))
	Expect(downloads).NotTo(ContainSubstring("failed"), box.Name)
}
