import js from "@eslint/js";

export default [
  { ignores: ["**/vendor/**"] },
  js.configs.recommended,
  {
    rules: {
      "no-undef": "off", // tsc knows what a browser has
      eqeqeq: "error",
      "no-implicit-coercion": "error",
      "no-param-reassign": "off",
      "no-shadow": "error",
      "no-unused-private-class-members": "error",
      "no-useless-rename": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-arrow-callback": "error",
      "prefer-const": ["error", { destructuring: "all" }],
      "prefer-template": "error",
    },
  },
];
