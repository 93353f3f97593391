package quickstart

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Screen shows permanent lines and, on a terminal, a block below them that is redrawn. Without a terminal it shows
// lines only. It is safe for concurrent use.
type Screen struct {
	out   io.Writer
	since time.Time
	// size returns the columns and rows of the terminal, or 0 without a terminal.
	size func() (columns, rows int)

	mu sync.Mutex
	// drawn is the number of lines of the block on the screen.
	drawn int
	block []string
}

// NewScreen returns a Screen for a file. Times count from now.
func NewScreen(out *os.File) *Screen {
	return &Screen{out: out, since: time.Now(), size: func() (int, int) {
		if os.Getenv("TERM") == "dumb" {
			return 0, 0
		}
		size, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return 0, 0
		}
		return int(size.Col), int(size.Row)
	}}
}

// Say shows a permanent line with the time.
func (s *Screen) Say(format string, args ...any) {
	s.print(fmt.Sprintf("[%6.1fs] %s", time.Since(s.since).Seconds(), fmt.Sprintf(format, args...)))
}

// Print shows permanent lines.
func (s *Screen) Print(lines ...string) { s.print(lines...) }

func (s *Screen) print(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out strings.Builder
	s.erase(&out)
	for _, line := range lines {
		out.WriteString(line + "\n")
	}
	s.draw(&out)
	_, _ = io.WriteString(s.out, out.String())
}

// Terminal reports whether the screen is a terminal.
func (s *Screen) Terminal() bool {
	columns, _ := s.size()
	return columns > 0
}

// Show redraws the block; without lines it removes the block.
func (s *Screen) Show(block ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(block, s.block) {
		return
	}
	var out strings.Builder
	s.erase(&out)
	s.block = block
	s.draw(&out)
	_, _ = io.WriteString(s.out, out.String())
}

// erase removes the block (ECMA-48 CUU and ED).
func (s *Screen) erase(out *strings.Builder) {
	if s.drawn > 0 {
		fmt.Fprintf(out, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}

// draw draws as much of the block as fits. Lines must not wrap, because erase counts lines.
func (s *Screen) draw(out *strings.Builder) {
	columns, rows := s.size()
	if columns == 0 || len(s.block) == 0 {
		return
	}
	for _, line := range s.block[:min(len(s.block), max(rows-1, 0))] {
		out.WriteString(clip(line, columns) + "\n")
		s.drawn++
	}
}

// clip shortens a line to a number of characters.
func clip(line string, most int) string {
	if utf8.RuneCountInString(line) <= most {
		return line
	}
	return string([]rune(line)[:most])
}
