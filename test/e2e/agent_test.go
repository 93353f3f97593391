//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// mostAgentMemory is the agent's bound when idle, in KiB.
const mostAgentMemory = 20 << 10

// expectSmallAgents prints and checks what idle agents take.
func expectSmallAgents(ctx context.Context) {
	GinkgoHelper()
	for _, host := range hosts.Hosts() {
		out, err := host.Exec(ctx, "sh", "-c",
			`awk '/^VmRSS/ {print $2}' /proc/$(systemctl show --property MainPID --value elemental-agent)/status`)
		Expect(err).NotTo(HaveOccurred())
		resident, err := strconv.Atoi(strings.TrimSpace(out))
		Expect(err).NotTo(HaveOccurred())
		fmt.Printf("  the agent on %s takes %.1f MiB\n", host.Name, float64(resident)/1024)
		Expect(resident).To(BeNumerically("<", mostAgentMemory), "agent on %s", host.Name)
	}
}
