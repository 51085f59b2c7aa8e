// SPDX-License-Identifier: Apache-2.0
/* A loop that OpenMP divides among its threads, which meet after each: `omp ROUNDS`. */
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words)
{
	int rounds = count > 1 ? atoi(words[1]) : 1000;
	double sum = 0;

	for (int round = 0; round < rounds; round++) {
#pragma omp parallel for reduction(+ : sum) schedule(static)
		for (int i = 0; i < 40000; i++)
			sum += 1.0 / (1 + i + round);
	}
	printf("%g\n", sum);
	return 0;
}
