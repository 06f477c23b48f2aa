// Charges a wallet, once: charge.go NUMBER PROVIDER PESEWAS ORDER. Needs API and KEY.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"
)

// The answer's status and body. Repeats what got no answer, with the same key.
func charge(number, provider string, pesewas int, order string) (int, []byte) {
	debit, _ := json.Marshal(map[string]any{
		"amount": float64(pesewas) / 100, "mobile_number": number, "provider": provider,
	})
	client := http.Client{Timeout: 15 * time.Second}
	for tries := 0; tries < 5; tries++ {
		pause := 1
		url := os.Getenv("API") + "/api/v1/payments/charge"
		request, err := http.NewRequest("POST", url, bytes.NewReader(debit))
		if err != nil {
			log.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+os.Getenv("KEY"))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", order)
		answer, err := client.Do(request)
		if err == nil {
			body, cut := io.ReadAll(answer.Body)
			answer.Body.Close()
			if cut == nil && !again(answer.StatusCode, body) {
				return answer.StatusCode, body
			}
			if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil {
				pause = seconds
			}
		} else {
			log.Print("no answer: ", err)
		}
		time.Sleep(time.Duration(pause) * time.Second)
	}
	log.Fatal("no answer; the payer may have been charged: try again with the same order")
	return 0, nil
}

// Whether the request is to be repeated.
func again(status int, body []byte) bool {
	var failure struct{ Code string }
	json.Unmarshal(body, &failure)
	return status == 429 || status >= 500 || failure.Code == "IDEMPOTENCY_IN_PROGRESS"
}

func main() {
	pesewas, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	status, body := charge(os.Args[1], os.Args[2], pesewas, os.Args[4])
	fmt.Println(string(body))
	// 202: the payer has the prompt, or a code is wanted. Anything else: see "status" or "code".
	if status != 202 {
		os.Exit(1)
	}
}
